//! Joins a group and says on standard output what its seat says, until its standard input ends: a member that tests can stop and
//! kill. `weir-zookeeper-member SERVERS SESSION_TIMEOUT_MS RUN NAME INCARNATION`

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;
use weir_seams::membership::{Group, Member, Membership, SeatChange};
use weir_sys::poll::{Interest, wait};
use weir_zookeeper::ZooKeeper;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, session_timeout_ms, run, name, incarnation] = arguments.as_slice() else {
        eprintln!("weir-zookeeper-member SERVERS SESSION_TIMEOUT_MS RUN NAME INCARNATION");
        return ExitCode::from(2);
    };
    let session_timeout =
        Duration::from_millis(session_timeout_ms.parse().expect("a number of milliseconds"));
    let group = Group { run: run.clone(), role: "builders".to_owned() };
    let member = Member {
        name: name.clone(),
        incarnation: incarnation.parse().expect("a number"),
        address: format!("192.0.2.1:{}", std::process::id()),
        details: serde_json::Value::Null,
    };
    let service = ZooKeeper::open(servers, session_timeout, "/weir", &group).expect("a service");
    let mut seat = service.join(&member).expect("a seat");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0); // without leaving: the session ends by its time-out
    });
    loop {
        wait(seat.ready(), Interest::Readable, Duration::from_secs(3600)).expect("a descriptor");
        match seat.next() {
            Some(SeatChange::Held) => println!("held"),
            Some(SeatChange::Lapsed(why)) => println!("lapsed {why}"),
            Some(SeatChange::Fenced { by, why }) => {
                println!("fenced {by} {why}");
                return ExitCode::from(1);
            }
            None => {}
        }
    }
}
