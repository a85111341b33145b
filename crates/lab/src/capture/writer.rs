//! The other side of a capture: batches into a file, in a thread of its own.

use super::pcapng::{self, Statistics};
use super::tap::{Batch, Ended, Shared};
use super::{Epoch, Outcome};
use crate::segment::complete_checksum;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How often a writer without packets looks whether anybody still wants them.
const LOOK: Duration = Duration::from_millis(100);
/// How long a writer that is done waits for the fabric to notice.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// Where the file goes.
pub(super) trait Output: Write + Send {
    /// Whether nobody reads any more.
    fn is_closed(&mut self) -> bool;
    /// Says how it went, after the last byte.
    fn finish(self: Box<Self>, outcome: &Outcome);
}

pub(super) struct Writer {
    pub from_tap: Receiver<Batch>,
    pub to_tap: SyncSender<Batch>,
    pub shared: Arc<Shared>,
    pub names: Vec<String>,
    pub snap_bytes: u32,
    pub start_ns: u64,
    pub epoch: Epoch,
    /// Real time of time stamp 0, nanoseconds since 1970.
    pub epoch_real_ns: u64,
    pub duration_ns: Option<u64>,
}

impl Writer {
    pub(super) fn run(mut self, mut output: Box<dyn Output>) {
        let mut packets = vec![0; self.names.len()];
        let written = self.write(&mut output, &mut packets);
        self.shared.done.store(true, Ordering::Relaxed);
        let error = written.err().map(|error| error.to_string());
        // What came while we were busy, or after the time was up, is lost only if it could not be written.
        let (ended, late) = self.rest(&mut output, &mut packets, error.is_some());
        let error = error.or_else(|| late.err().map(|error| error.to_string()));
        let error =
            error.or_else(|| self.statistics(&mut output, &ended, &packets).err().map(|e| e.to_string()));
        let written: u64 = packets.iter().sum();
        let seen: u64 = ended.seen.iter().sum();
        output.finish(&Outcome { packets: written, lost: seen.saturating_sub(written), error });
    }

    fn write(&mut self, output: &mut Box<dyn Output>, packets: &mut [u64]) -> io::Result<()> {
        let mut head = Vec::new();
        pcapng::section(&mut head, concat!("weir ", env!("CARGO_PKG_VERSION")), &self.about_time());
        for name in &self.names {
            pcapng::interface(&mut head, name, self.snap_bytes);
        }
        output.write_all(&head)?;
        let until = self.duration_ns.map(|ns| Instant::now() + Duration::from_nanos(ns));
        loop {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            match self.from_tap.recv_timeout(left.min(LOOK)) {
                Ok(batch) => self.write_batch(output, batch, packets)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    output.flush()?;
                    if output.is_closed() {
                        return Ok(());
                    }
                }
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }

    fn write_batch(
        &mut self,
        output: &mut Box<dyn Output>,
        mut batch: Batch,
        packets: &mut [u64],
    ) -> io::Result<()> {
        for open in &batch.checksums {
            let ip = &mut batch.bytes[open.at..open.at + open.bytes];
            complete_checksum(&open.vnet, open.protocol, ip);
        }
        output.write_all(&batch.bytes)?;
        for (sum, more) in packets.iter_mut().zip(&batch.packets) {
            *sum += more;
        }
        let _ = self.to_tap.try_send(batch); // memory for the next one; without room it is freed
        Ok(())
    }

    /// Takes what the tap still hands over until it has ended.
    fn rest(
        &mut self,
        output: &mut Box<dyn Output>,
        packets: &mut [u64],
        failed: bool,
    ) -> (Ended, io::Result<()>) {
        let until = Instant::now() + NOTICED_WITHIN;
        let mut result = Ok(());
        while let Ok(batch) = self.from_tap.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if !failed && result.is_ok() {
                result = self.write_batch(output, batch, packets);
            }
        }
        let ended = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (ended.unwrap_or_default(), result)
    }

    fn statistics(&self, output: &mut Box<dyn Output>, ended: &Ended, packets: &[u64]) -> io::Result<()> {
        let mut tail = Vec::new();
        for (interface, (seen, written)) in ended.seen.iter().zip(packets).enumerate() {
            pcapng::statistics(
                &mut tail,
                &Statistics {
                    interface: interface as u32,
                    start_ns: self.start_ns,
                    end_ns: ended.end_ns,
                    received: *seen,
                    dropped: seen.saturating_sub(*written),
                },
            );
        }
        output.write_all(&tail)?;
        output.flush()
    }

    fn about_time(&self) -> String {
        let (seconds, ns) = (self.epoch_real_ns / 1_000_000_000, self.epoch_real_ns % 1_000_000_000);
        let zero = match self.epoch {
            Epoch::Lab => "the start of the lab's fabric",
            Epoch::At(_) => "the start of the trial",
            Epoch::Real => return "Time stamps are real time, exact to one another.".to_owned(),
        };
        format!(
            "Time stamps are experiment time: 0 is {zero}, {seconds}.{ns:09} s after 1970-01-01 00:00 UTC by this machine's clock."
        )
    }
}
