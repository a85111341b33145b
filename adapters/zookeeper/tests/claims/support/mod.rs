//! What the tests here share.

pub mod server;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weir_seams::membership::{Change, Group, Member, Membership, Seat, SeatChange, Watch};
use weir_sys::poll::{Interest, wait};
use weir_zookeeper::ZooKeeper;

/// For each thing that is waited for, on a machine that has other things to do.
pub const LIMIT: Duration = Duration::from_secs(120);

pub fn readable(descriptor: BorrowedFd<'_>, limit: Duration) -> bool {
    wait(descriptor, Interest::Readable, limit).unwrap()
}

pub fn open(servers: &str, session_timeout: Duration, run: &str) -> ZooKeeper {
    let group = Group { run: run.to_owned(), role: "builders".to_owned() };
    ZooKeeper::open(servers, session_timeout, "/weir", &group).unwrap()
}

pub fn member(name: &str, incarnation: u64) -> Member {
    let address = format!("192.0.2.1:{incarnation}");
    Member { name: name.to_owned(), incarnation, address, details: serde_json::Value::Null }
}

/// Waits until a seat says what is wanted, and gives what it said before.
pub fn heard(seat: &mut Box<dyn Seat>, wanted: impl Fn(&SeatChange) -> bool) -> Vec<SeatChange> {
    let until = Instant::now() + LIMIT;
    let mut heard = Vec::new();
    loop {
        while let Some(change) = seat.next() {
            heard.push(change);
            if wanted(heard.last().unwrap()) {
                return heard;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the seat said {heard:?} and nothing else");
        readable(seat.ready(), left);
    }
}

/// One who follows a watch.
pub struct Follower {
    watch: Box<dyn Watch>,
    /// Name and incarnation.
    pub members: BTreeMap<String, u64>,
    pub told: Vec<Change>,
}

impl Follower {
    pub fn of(service: &dyn Membership) -> Follower {
        let mut follower =
            Follower { watch: service.watch().unwrap(), members: BTreeMap::new(), told: Vec::new() };
        follower.until("the list is whole", |follower| follower.told.contains(&Change::Current));
        follower
    }

    pub fn until(&mut self, what: &str, reached: impl Fn(&Follower) -> bool) {
        let until = Instant::now() + LIMIT;
        while !reached(self) {
            if let Some(change) = self.watch.next() {
                match &change {
                    Change::Joined(member) => {
                        self.members.insert(member.name.clone(), member.incarnation);
                    }
                    Change::Left { name, .. } => {
                        self.members.remove(name);
                    }
                    _ => {}
                }
                self.told.push(change);
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not so: {what}; told: {:#?}", self.told);
            readable(self.watch.ready(), left);
        }
    }

    pub fn sees(&mut self, members: &[(&str, u64)]) {
        let wanted: BTreeMap<String, u64> =
            members.iter().map(|(name, incarnation)| ((*name).to_owned(), *incarnation)).collect();
        self.until(&format!("members are {wanted:?}"), |follower| follower.members == wanted);
    }
}

/// What another client of the server sees and does.
pub struct Raw {
    runtime: tokio::runtime::Runtime,
    client: zookeeper_client::Client,
}

impl Raw {
    pub fn connect(servers: &str) -> Raw {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let connector = zookeeper_client::Client::connector().with_session_timeout(LIMIT);
        let client = runtime.block_on(connector.connect(servers)).unwrap();
        Raw { runtime, client }
    }

    /// The node's data, and whether it ends with a session; `None`: there is no such node.
    pub fn read(&self, path: &str) -> Option<(String, bool)> {
        match self.runtime.block_on(self.client.get_data(path)) {
            Ok((data, stat)) => Some((String::from_utf8(data).unwrap(), stat.ephemeral_owner != 0)),
            Err(zookeeper_client::Error::NoNode) => None,
            Err(problem) => panic!("{path}: {problem}"),
        }
    }

    pub fn write(&self, path: &str, data: &str) {
        self.runtime.block_on(self.client.set_data(path, data.as_bytes(), None)).unwrap();
    }

    /// With all below it, which may grow meanwhile.
    pub fn remove(&self, path: &str) {
        for _ in 0..1000 {
            for child in self.runtime.block_on(self.client.list_children(path)).unwrap_or_default() {
                self.remove(&format!("{path}/{child}"));
            }
            match self.runtime.block_on(self.client.delete(path, None)) {
                Ok(()) | Err(zookeeper_client::Error::NoNode) => return,
                Err(zookeeper_client::Error::NotEmpty) => {}
                Err(problem) => panic!("{path}: {problem}"),
            }
        }
        panic!("{path} is filled faster than it can be emptied");
    }
}

/// A member in a process of its own.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(
        servers: &str,
        session_timeout: Duration,
        run: &str,
        name: &str,
        incarnation: u64,
    ) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-zookeeper-member"))
            .args([servers, &session_timeout.as_millis().to_string(), run, name, &incarnation.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Process { child, lines }
    }

    pub fn says(&self, wanted: &str) {
        let until = Instant::now() + LIMIT;
        let mut said = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with(wanted) => return,
                Ok(line) => said.push(line),
                Err(end) => panic!("{end}: it said {said:?}, and not {wanted:?}"),
            }
        }
    }

    /// `-STOP`, `-CONT`, `-KILL`
    pub fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// How it ended by itself. Its standard input stays open meanwhile.
    pub fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
