//! A path on loopback between a client and a server, over TCP and UDP at one port, that loses the datagrams it is told to lose.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    There,
    Back,
}

/// The connections that a relay carries.
#[derive(Clone, Default)]
pub struct Breaker(Arc<Mutex<Vec<TcpStream>>>);

impl Breaker {
    pub fn break_all(&self) {
        for stream in self.0.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub struct Relay {
    pub address: SocketAddr,
    breaker: Breaker,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// `loses` says of each datagram whether it is lost; it is asked once for each.
    pub fn begin(server: SocketAddr, mut loses: impl FnMut(Way, &[u8]) -> bool + Send + 'static) -> Relay {
        let (streams, datagrams) = loop {
            let streams = TcpListener::bind("127.0.0.1:0").unwrap();
            // The number may be taken for UDP.
            if let Ok(datagrams) = UdpSocket::bind(streams.local_addr().unwrap()) {
                break (streams, datagrams);
            }
        };
        let address = streams.local_addr().unwrap();
        let (over, breaker) = (Arc::new(AtomicBool::new(false)), Breaker::default());
        streams.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn({
            let (over, breaker) = (Arc::clone(&over), breaker.clone());
            move || {
                let mut clients: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
                let mut bytes = [0; 2048];
                while !over.load(Ordering::Relaxed) {
                    if let Ok((near, _)) = streams.accept() {
                        near.set_nonblocking(false).unwrap();
                        let far = TcpStream::connect(server).unwrap();
                        let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                        breaker.0.lock().unwrap().extend(both);
                        join(near, far);
                    }
                    while let Ok((count, from)) = datagrams.recv_from(&mut bytes) {
                        let far = clients.entry(from).or_insert_with(|| {
                            let far = UdpSocket::bind("127.0.0.1:0").unwrap();
                            far.connect(server).unwrap();
                            far.set_nonblocking(true).unwrap();
                            far
                        });
                        if !loses(Way::There, &bytes[..count]) {
                            let _ = far.send(&bytes[..count]);
                        }
                    }
                    for (client, far) in &clients {
                        while let Ok(count) = far.recv(&mut bytes) {
                            if !loses(Way::Back, &bytes[..count]) {
                                let _ = datagrams.send_to(&bytes[..count], client);
                            }
                        }
                    }
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        });
        Relay { address, breaker, over, thread: Some(thread) }
    }

    pub fn breaker(&self) -> Breaker {
        self.breaker.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Carries a connection both ways until each has ended.
fn join(near: TcpStream, far: TcpStream) {
    let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
    for (mut from, mut to) in ways {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
