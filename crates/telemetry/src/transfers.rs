//! What servers say of the files that are open on them, and what of each has moved by now.
//!
//! XRootD's detailed monitoring: datagrams with the dictionary of its clients (`u`) and records of opened, moved and closed files (`f`), all in
//! network order, as "System Monitoring Reference" of XRootD 5 has them.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_core::text::shown;

/// Ended transfers of a daemon that are kept, and clients and files at a time that are known by name. What is beyond is counted.
const TRANSFERS_MAX: usize = 100_000;
/// Letters of a name.
const NAME_MAX: usize = 300;
/// Of one datagram; XRootD's are 64 KiB at most.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Datagrams that one look takes: who sends more than that is not waited for.
const DATAGRAMS_MAX: usize = 1_000;

/// A file that a client had open on a server, or has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    pub path: String,
    /// As the server calls it: protocol, user, process and host.
    pub client: String,
    pub size_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// When the server's word of it came, Unix time.
    pub opened_ns: u64,
    /// `None` while it is in flight.
    pub closed_ns: Option<u64>,
}

/// What one server has said.
#[derive(Debug, Default)]
struct Heard {
    /// When the server began, by its own clock: another one knows nothing of the files of the one before.
    server_began: Option<u32>,
    clients: BTreeMap<u32, String>,
    in_flight: BTreeMap<u32, Transfer>,
    ended: Vec<Transfer>,
    left_out: u64,
}

/// A cut of a datagram, read from its front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }
    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }
    /// A count of bytes, which the format has as a signed number.
    fn count(&mut self) -> Option<u64> {
        let number = i64::from_be_bytes(self.take(8)?.try_into().ok()?);
        Some(u64::try_from(number).unwrap_or(0))
    }
}

fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| matches!(byte, 0 | b'\n')).unwrap_or(bytes.len());
    shown(&String::from_utf8_lossy(&bytes[..end]), NAME_MAX)
}

const CLOSED: u8 = 0;
const OPENED: u8 = 1;
const MOVED: u8 = 3;
const LEFT: u8 = 4;
/// Of an opened file: its name is there.
const HAS_NAME: u8 = 1;

impl Heard {
    /// One datagram; what is none of these, or cut short, says nothing. `now_ns` is Unix time.
    fn hear(&mut self, datagram: &[u8], now_ns: u64) -> Option<()> {
        let mut bytes = Bytes(datagram);
        let (kind, _sequence, length) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
        let began = bytes.u32()?;
        bytes.0 = bytes.0.get(..usize::from(length).checked_sub(8)?)?;
        if !matches!(kind, b'u' | b'f') {
            return None;
        }
        if self.server_began.replace(began).is_some_and(|before| before != began) {
            self.clients.clear();
            let lost: Vec<u32> = self.in_flight.keys().copied().collect();
            lost.into_iter().for_each(|file| self.close(file, now_ns));
        }
        if kind == b'u' {
            let client = bytes.u32()?;
            if self.clients.len() < TRANSFERS_MAX {
                self.clients.insert(client, name(bytes.0));
            }
            return Some(());
        }
        while !bytes.0.is_empty() {
            let (what, flags, length) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
            let mut record = Bytes(bytes.take(usize::from(length).checked_sub(4)?)?);
            self.record(what, flags, &mut record, now_ns);
        }
        Some(())
    }

    fn record(&mut self, what: u8, flags: u8, record: &mut Bytes<'_>, now_ns: u64) -> Option<()> {
        let id = record.u32()?;
        match what {
            OPENED => {
                let size_bytes = record.count()?;
                let (client, path) = match flags & HAS_NAME {
                    0 => (0, String::new()),
                    _ => (record.u32()?, name(record.0)),
                };
                if self.in_flight.len() >= TRANSFERS_MAX {
                    self.left_out += 1;
                    return None;
                }
                let client = self.clients.get(&client).cloned().unwrap_or_default();
                let opened = Transfer { path, client, size_bytes, opened_ns: now_ns, ..Transfer::default() };
                self.in_flight.insert(id, opened);
            }
            MOVED | CLOSED => {
                let transfer = self.in_flight.get_mut(&id)?;
                if let (Some(read), Some(by_vectors), Some(written)) =
                    (record.count(), record.count(), record.count())
                {
                    transfer.read_bytes = read.saturating_add(by_vectors);
                    transfer.written_bytes = written;
                }
                if what == CLOSED {
                    self.close(id, now_ns);
                }
            }
            LEFT => drop(self.clients.remove(&id)),
            _ => {}
        }
        Some(())
    }

    fn close(&mut self, id: u32, now_ns: u64) {
        let Some(transfer) = self.in_flight.remove(&id) else { return };
        if self.ended.len() < TRANSFERS_MAX {
            self.ended.push(Transfer { closed_ns: Some(now_ns), ..transfer });
        } else {
            self.left_out += 1;
        }
    }
}

/// Hears one server for as long as it is up, whoever looks.
#[derive(Debug)]
pub struct Transfers {
    socket: UdpSocket,
    heard: Mutex<Heard>,
}

/// All that a server has said of transfers.
#[derive(Clone, Debug, Default)]
pub struct TransferList {
    /// Those that have ended, then those in flight.
    pub all: Vec<Transfer>,
    /// So many more were too many to keep.
    pub left_out: u64,
}

impl Transfers {
    /// `socket` is where the server sends. Errors: it cannot be made one that nobody waits for.
    pub fn at(socket: UdpSocket) -> std::io::Result<Transfers> {
        socket.set_nonblocking(true)?;
        Ok(Transfers { socket, heard: Mutex::default() })
    }

    /// Takes what has come. Returns how many are in flight.
    pub fn look(&self) -> usize {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = weir_core::time::nanoseconds(now);
        let mut datagram = [0; DATAGRAM_BYTES];
        for _ in 0..DATAGRAMS_MAX {
            let Ok(length) = self.socket.recv(&mut datagram) else { break };
            heard.hear(&datagram[..length], now_ns);
        }
        heard.in_flight.len()
    }

    pub fn list(&self) -> TransferList {
        self.look();
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let all = heard.ended.iter().chain(heard.in_flight.values()).cloned().collect();
        TransferList { all, left_out: heard.left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, began: u32, body: &[u8]) -> Vec<u8> {
        let mut all = vec![kind, 0];
        all.extend(u16::try_from(8 + body.len()).unwrap().to_be_bytes());
        all.extend(began.to_be_bytes());
        all.extend(body);
        all
    }

    fn record(what: u8, flags: u8, id: u32, rest: &[u8]) -> Vec<u8> {
        let mut all = vec![what, flags];
        all.extend(u16::try_from(8 + rest.len()).unwrap().to_be_bytes());
        all.extend(id.to_be_bytes());
        all.extend(rest);
        all
    }

    fn moved(read: i64, by_vectors: i64, written: i64) -> Vec<u8> {
        [read, by_vectors, written].iter().flat_map(|count| count.to_be_bytes()).collect()
    }

    fn opened(file: u32, client: u32, path: &str) -> Vec<u8> {
        let mut rest = 4_000_i64.to_be_bytes().to_vec();
        rest.extend(client.to_be_bytes());
        rest.extend(path.as_bytes());
        rest.extend([0; 3]);
        record(OPENED, HAS_NAME, file, &rest)
    }

    fn said() -> Vec<Vec<u8>> {
        let client = [&7_u32.to_be_bytes()[..], b"xroot/nobody.1:2@farm-0\n&p=unix"].concat();
        let time = record(2, 1, 0, &[0; 16]);
        vec![
            packet(b'u', 1, &client),
            packet(b'f', 1, &[time.clone(), opened(1, 7, "/store/a"), opened(2, 9, "/store/b")].concat()),
            packet(b'f', 1, &[time, record(MOVED, 0, 1, &moved(10, 20, 0))].concat()),
            packet(b'f', 1, &record(CLOSED, 0, 1, &moved(30, 40, 5))),
        ]
    }

    // Spec: services.md#service-24
    #[test]
    fn what_is_open_is_in_flight_with_what_has_moved_until_it_is_closed() {
        let mut heard = Heard::default();
        let said = said();
        (0..3).for_each(|index| assert!(heard.hear(&said[index], index as u64).is_some(), "{index}"));
        let first = &heard.in_flight[&1];
        assert_eq!((&first.path[..], &first.client[..]), ("/store/a", "xroot/nobody.1:2@farm-0"));
        assert_eq!((first.size_bytes, first.read_bytes, first.opened_ns), (4_000, 30, 1));
        assert_eq!(&heard.in_flight[&2].client, "", "a client that was never named");
        heard.hear(&said[3], 3).unwrap();
        assert_eq!(heard.in_flight.len(), 1);
        let ended = &heard.ended[0];
        assert_eq!((ended.read_bytes, ended.written_bytes, ended.closed_ns), (70, 5, Some(3)));
        // Another server in its place knows nothing of the files of the one before.
        heard.hear(&packet(b'f', 2, &opened(2, 7, "/store/c")), 9).unwrap();
        assert_eq!((heard.ended.len(), &heard.in_flight[&2].path[..]), (2, "/store/c"));
    }

    #[test]
    fn ten_thousand_damaged_datagrams_end_nothing() {
        let said = said();
        let mut seed = 1_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let mut heard = Heard::default();
        for round in 0..10_000 {
            let mut bad = said[next() % said.len()].clone();
            for _ in 0..=next() % 4 {
                let at = next() % bad.len();
                bad[at] = next() as u8;
            }
            bad.truncate(1 + next() % bad.len());
            heard.hear(&bad, round);
        }
        assert!(heard.in_flight.len() + heard.ended.len() <= 20_000);
    }

    #[test]
    fn a_socket_is_emptied_at_a_look_and_waits_for_nobody() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let transfers = Transfers::at(socket).unwrap();
        assert_eq!(transfers.look(), 0);
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        said()[..3].iter().for_each(|datagram| assert!(server.send_to(datagram, at).is_ok()));
        assert_eq!((transfers.look(), transfers.list().all.len()), (2, 2));
    }
}
