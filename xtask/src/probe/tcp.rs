//! Bulk TCP between the ends of a pair, as the receiver sees it.

use super::pair::Pair;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;
use weir_core::Instant;
use weir_sys::clock::monotonic;
use weir_sys::netns;
use weir_sys::socket::{set_congestion, set_window_clamp};

const BLOCK_BYTES: usize = 256 << 10;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A receiver that has waited so long for the next byte gives up.
const SILENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Left out at the beginning.
    pub warm_up: Duration,
    /// Measured after that.
    pub duration: Duration,
    /// Cap on what is in flight; `None`: the kernel's own.
    pub window_bytes: Option<u64>,
}

/// When each read returned and how many bytes had come by then; from the first read after the warm-up on.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    pub at_ns: Vec<u64>,
    pub bytes: Vec<u64>,
}

impl Arrivals {
    /// Payload per second: the slope of the line of least squares through all reads, in which one late read weighs little;
    /// `None` with fewer than two.
    pub fn bits_per_second(&self) -> Option<f64> {
        slope(&self.at_ns, self.bytes.iter().map(|bytes| *bytes as f64))
            .map(|bytes_per_ns| bytes_per_ns * 8e9)
    }
}

/// Slope of the line of least squares; `None` when all times are the same.
pub fn slope(at_ns: &[u64], values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let first = *at_ns.first()?;
    // Times from the first on, so that squares keep their digits.
    let times = || at_ns.iter().map(|at| (at - first) as f64);
    let count = at_ns.len() as f64;
    let (time_mean, value_mean) = (times().sum::<f64>() / count, values.clone().sum::<f64>() / count);
    let (mut both, mut squares) = (0.0, 0.0);
    for (time, value) in times().zip(values) {
        both += (time - time_mean) * (value - value_mean);
        squares += (time - time_mean).powi(2);
    }
    (squares > 0.0).then(|| both / squares)
}

/// One connection, cubic, that sends as fast as it may.
pub fn run(pair: &Pair, plan: &Plan) -> Result<Arrivals, String> {
    let (listener, at) = pair.listener()?;
    if let Some(window) = plan.window_bytes {
        set_window_clamp(listener.as_fd(), window).map_err(|problem| format!("the window: {problem}"))?;
    }
    let start = monotonic();
    let (from, until) = (start + plan.warm_up, start + plan.warm_up + plan.duration);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (stream, _) = listener.accept()?;
            receive(stream, from, until)
        });
        let sender = scope.spawn(move || netns::run_in(pair.near.namespace.as_fd(), || send(at, until)));
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Without a connection the receiver would wait for ever in its accept: one is made for it.
        if sent.is_err() || sent.as_ref().is_ok_and(Result::is_err) {
            let _ = netns::run_in(pair.near.namespace.as_fd(), || {
                TcpStream::connect_timeout(&at, CONNECT_WITHIN).map(drop)
            });
        }
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and_then(|sent| sent).map_err(|problem| format!("sending over TCP: {problem}"))?;
        received.map_err(|problem| format!("receiving over TCP: {problem}"))
    })
}

fn send(to: std::net::SocketAddr, until: Instant) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT_WITHIN)?;
    set_congestion(stream.as_fd(), "cubic")?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let block = vec![0_u8; BLOCK_BYTES];
    while monotonic() < until {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // The receiver has seen enough.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => break,
            Err(error) => return Err(error),
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}

fn receive(mut stream: TcpStream, from: Instant, until: Instant) -> std::io::Result<Arrivals> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut arrivals = Arrivals::default();
    let (mut block, mut total) = (vec![0_u8; 4 * BLOCK_BYTES], 0_u64);
    loop {
        let bytes = stream.read(&mut block)?;
        let now = monotonic();
        total += bytes as u64;
        if bytes == 0 || now >= until {
            // What was sent and not read would be answered with a reset, which ends the sender too.
            return Ok(arrivals);
        }
        if now >= from {
            arrivals.at_ns.push(now.as_ns());
            arrivals.bytes.push(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_read_of_many_hardly_moves_the_rate() {
        let mut at_ns: Vec<u64> = (0..100).map(|number| 5_000_000_000 + number * 1_000_000).collect();
        let bytes: Vec<u64> = (0..100).map(|number| number * 1_000).collect();
        let exact = Arrivals { at_ns: at_ns.clone(), bytes: bytes.clone() }.bits_per_second().unwrap();
        assert!((exact - 8e6).abs() < 1e-3, "{exact}");
        at_ns[99] += 900_000;
        let late = Arrivals { at_ns, bytes }.bits_per_second().unwrap();
        assert!((late / 8e6 - 1.0).abs() < 6e-4, "{late}");
        assert_eq!(Arrivals { at_ns: vec![1], bytes: vec![1] }.bits_per_second(), None);
    }
}
