//! Peers that break the protocol's rules, beside a run of peers that keep them: nobody hangs, grows or loses an event.

use crate::support::event_run::{Run, of};
use crate::support::{beside, eventually};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use weir_event::message::{Done, Join, Message, Outcome, Role, VERSION};
use weir_event::shell::{CONTROL, token_of};
use weir_event::wire::{self, Decoder, Header};
use weir_transport::dial::{Call, dial};
use weir_transport::handshake::{Mode, Token};

const LIMIT: Duration = Duration::from_secs(3);
/// A role that does its work here takes a tenth of this.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

fn call(address: SocketAddr, mode: Mode, token: Token, flow: u32) -> Option<TcpStream> {
    let stream = dial(&[Call { address, mode, token, flow }], None, None, LIMIT).ok()?.pop()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_write_timeout(Some(LIMIT)).ok()?;
    Some(stream)
}

/// One that is let in as a builder: it knows the run's token.
struct Liar {
    control: TcpStream,
    token: Token,
}

fn liar(scheduler: SocketAddr) -> Liar {
    let mut control = call(scheduler, Mode::Control, CONTROL, 0).expect("the scheduler lets it in");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let join = Join {
        version: VERSION,
        name: "liar".to_owned(),
        host: "elsewhere".to_owned(),
        incarnation: now.as_nanos() as u64,
        // Nobody listens there: no source has a channel to it, and it gets no event.
        role: Role::Builder { memory_bytes: u64::MAX, data: ([127, 0, 0, 1], 9).into() },
        known: None,
    };
    tell(&mut control, &Message::Join(Box::new(join)));
    let (mut decoder, mut bytes) = (Decoder::new(), vec![0; 65_536]);
    loop {
        let count = control.read(&mut bytes).expect("the scheduler speaks");
        assert!(count > 0, "the scheduler hung up");
        let mut input = &bytes[..count];
        while let Some(message) = decoder.next(&mut input).unwrap() {
            if let Message::Welcome(welcome) = message {
                return Liar { control, token: token_of(&welcome.run).unwrap() };
            }
        }
    }
}

fn tell(stream: &mut TcpStream, message: &Message) {
    let mut frame = Vec::new();
    wire::encode(message, &mut frame).unwrap();
    let _ = stream.write_all(&frame);
}

/// What a peer that knows everything but the rules may send to a builder.
fn lie_to_builder(address: SocketAddr, token: Token, random: &mut Xoshiro256PlusPlus) {
    let flow = (random.next_u64() % 200) as u32;
    let Some(mut stream) = call(address, Mode::Data, token, flow) else { return };
    let noise: Vec<u8> = (0..10_000).map(|_| random.next_u64() as u8).collect();
    let header = Header {
        source: (random.next_u64() % 70_000) as u16,
        bytes: if random.next_u64().is_multiple_of(2) { u32::MAX } else { 4_000 },
        id: random.next_u64() % 3_000,
        epoch: (random.next_u64() % 8) as u32,
        ..Header::default()
    };
    // A size that is none, an epoch that is over, a flood beyond every grant, or no header at all.
    for _ in 0..random.next_u64() % 400 {
        let sent = match random.next_u64() % 8 {
            0 => stream.write_all(&noise),
            _ => stream.write_all(&header.encode()).and_then(|()| stream.write_all(&noise[..4_000])),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn lie_to_scheduler(address: SocketAddr, random: &mut Xoshiro256PlusPlus) {
    let noise: Vec<u8> = (0..10_000).map(|_| random.next_u64() as u8).collect();
    match random.next_u64() % 3 {
        // No opening at all.
        0 => {
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, LIMIT) {
                let _ = stream.write_all(&noise);
            }
        }
        // Let in, and then noise, the length of a frame among it.
        1 => {
            if let Some(mut stream) = call(address, Mode::Control, CONTROL, 0) {
                let _ = stream.write_all(&noise);
            }
        }
        // Words of one who never joined.
        _ => {
            if let Some(mut stream) = call(address, Mode::Control, CONTROL, 0) {
                let done = Done { id: 1 << 40, epoch: u32::MAX, outcome: Outcome::Complete };
                (0..50).for_each(|_| tell(&mut stream, &Message::Done(vec![done; 100])));
            }
        }
    }
}

// Spec: event-building.md#credits-3
#[test]
fn peers_that_lie_flood_and_send_noise_cost_no_event_and_no_memory() {
    let _turn = beside();
    let mut run = Run::new(&["--rate", "200Hz", "--events", "1000", "--sources", "2", "--builders", "2"]);
    run.scheduler();
    let builders = ["b0", "b1"].map(|name| run.builder_at_a_known_place(name));
    let scheduler: SocketAddr = run.at.parse().unwrap();
    eventually("the scheduler listens", LIMIT, || TcpStream::connect(scheduler).is_ok());
    // Nobody is let in before all sources are there: one of them might know of a run.
    ["s0", "s1"].into_iter().for_each(|name| run.source(name));
    let mut liar = liar(scheduler);
    let over = AtomicBool::new(false);
    let peaks = std::thread::scope(|scope| {
        for (number, builder) in builders.iter().enumerate() {
            let (over, token) = (&over, liar.token);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
                while !over.load(Ordering::Relaxed) {
                    lie_to_builder(*builder, token, &mut random);
                    lie_to_scheduler(scheduler, &mut random);
                }
            });
        }
        // It claims to have built what nobody gave it, and of a future that it cannot know.
        for round in 0..30 {
            let done = |id| Done { id, epoch: round, outcome: Outcome::Complete };
            tell(
                &mut liar.control,
                &Message::Done((0..100).map(|id| done(u64::from(round) * 100 + id)).collect()),
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        let peaks = run.resident_peaks();
        over.store(true, Ordering::Relaxed);
        peaks
    });
    assert!(peaks.iter().all(|(_, bytes)| *bytes < RESIDENT_BYTES_MAX), "{peaks:?}");
    let summary = run.finish();
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (1000, 1000), "{summary:#}");
}
