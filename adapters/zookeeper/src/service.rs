//! The service as a role sees it, and the thread behind it.

use crate::line::{Link, PAUSE, Settings, keep, rest, up};
use crate::place::{Place, decode, decode_fence};
use crate::seat::{FOLDER, Holder, overtaken, raise, read};
use crate::watch::Follower;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use weir_core::Values;
use weir_seams::membership::{
    Change, Group, Liveness, MEMBERS_MAX, Member, Membership, MembershipError, Roster, Seat, SeatChange,
    SeatWord, Watch, check_name,
};
use weir_sys::bell::Belled;
use zookeeper_client::{Client, Error};

/// When a service is closed, seats that were given up have so long to be seen empty.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// And the session to be closed at the server; else it ends by its time-out.
const CLOSE_MAX: Duration = Duration::from_millis(300);
/// Fences on their way at a time.
const FENCES_MAX: usize = MEMBERS_MAX;

/// One session with ZooKeeper, for one group. It is closed with the last seat and watch, which may take 1.3 s where the server
/// does not answer; what is left at the server then ends with the session time-out.
pub struct ZooKeeper {
    inner: Arc<Inner>,
}

struct Inner {
    place: Arc<Place>,
    settings: Arc<Settings>,
    link: watch::Receiver<Link>,
    runtime: Handle,
    fences: Arc<Fences>,
    /// Cloned by each task that has something to take back: the thread waits for them.
    tasks: Option<tokio::sync::mpsc::Sender<()>>,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Fences that the service has not confirmed, by name.
#[derive(Default)]
struct Fences {
    waiting: Mutex<BTreeMap<String, u64>>,
    more: Notify,
}

impl Fences {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ZooKeeper {
    /// `servers`: HOST:PORT, several with commas between. Does not wait for any of them.
    ///
    /// Errors: values that cannot be meant; no thread.
    pub fn open(
        servers: &str,
        session_timeout: Duration,
        root: &str,
        group: &Group,
    ) -> Result<ZooKeeper, MembershipError> {
        check_servers(servers)?;
        let place = Arc::new(Place::new(root, group)?);
        let settings = Arc::new(Settings::new(servers.to_owned(), session_timeout));
        let no_thread = |problem: std::io::Error| {
            MembershipError::new(format!(
                "no thread for ZooKeeper's client: {problem}; raise the limits of threads and open files"
            ))
        };
        let runtime = Builder::new_current_thread().enable_time().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let first = Link::Away(format!("ZooKeeper ({servers}) has not answered yet"));
        let (link_sender, link) = watch::channel(first);
        let (close, closed) = oneshot::channel();
        let (tasks, tasks_left) = tokio::sync::mpsc::channel(1);
        let fences = Arc::new(Fences::default());
        let thread = Thread {
            link_sender: Arc::new(link_sender),
            settings: Arc::clone(&settings),
            fences: Arc::clone(&fences),
            place: Arc::clone(&place),
            closed,
            tasks_left,
        };
        let thread = std::thread::Builder::new()
            .name("weir-zookeeper".to_owned())
            .spawn(move || thread.run(&runtime))
            .map_err(no_thread)?;
        let inner = Inner {
            place,
            settings,
            link,
            runtime: handle,
            fences,
            tasks: Some(tasks),
            close: Some(close),
            thread: Some(thread),
        };
        Ok(ZooKeeper { inner: Arc::new(inner) })
    }

    pub(crate) fn from_values(values: &Values, group: &Group) -> Result<ZooKeeper, MembershipError> {
        let servers = values.text("servers").unwrap_or_default();
        let root = values.text("root").unwrap_or_default();
        let session_timeout = values.duration("session_timeout").unwrap_or(Duration::from_secs(5));
        ZooKeeper::open(&servers, session_timeout, &root, group)
    }
}

fn check_servers(servers: &str) -> Result<(), MembershipError> {
    let good = |server: &str| {
        let Some((host, port)) = server.rsplit_once(':') else { return false };
        let host_good = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
                !host.is_empty() && host.bytes().all(letter)
            }
        };
        host_good && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match servers.split(',').find(|server| !good(server)) {
        Some(bad) => Err(MembershipError::new(format!(
            "{bad:?} is no ZooKeeper server: write HOST:PORT, several with commas between and no spaces, as \"zk1:2181,zk2:2181\""
        ))),
        None => Ok(()),
    }
}

struct Thread {
    link_sender: Arc<watch::Sender<Link>>,
    settings: Arc<Settings>,
    place: Arc<Place>,
    fences: Arc<Fences>,
    closed: oneshot::Receiver<()>,
    tasks_left: tokio::sync::mpsc::Receiver<()>,
}

impl Thread {
    fn run(mut self, runtime: &Runtime) {
        runtime.block_on(async {
            let mut own = JoinSet::new();
            let (settings, sender) = (Arc::clone(&self.settings), Arc::clone(&self.link_sender));
            own.spawn(restarted(move || keep(Arc::clone(&settings), Arc::clone(&sender)), || {}));
            let link = self.link_sender.subscribe();
            let (place, fences) = (Arc::clone(&self.place), Arc::clone(&self.fences));
            own.spawn(restarted(
                move || put_fences(Arc::clone(&place), Arc::clone(&fences), link.clone()),
                || {},
            ));
            let _ = self.closed.await;
            let _ = timeout(LEAVE_MAX, self.tasks_left.recv()).await;
            let last = self.link_sender.send_replace(Link::Away("closed".to_owned()));
            own.shutdown().await;
            if let Link::Up { client, .. } = last {
                let mut states = client.state_watcher();
                // With its last handle the client closes the session, and what is left of us at the server.
                drop(client);
                let closed = async { while !states.changed().await.is_terminated() {} };
                let _ = timeout(CLOSE_MAX, closed).await;
            }
        });
    }
}

/// Runs a task to its end, and again from its beginning if it panics: the foreign client does so on answers it does not expect.
/// `broken` is called each time.
async fn restarted<F: Future<Output = ()> + Send + 'static>(task: impl Fn() -> F, broken: impl Fn()) {
    loop {
        let mut set = JoinSet::new();
        set.spawn(task());
        match set.join_next().await {
            Some(Err(problem)) if problem.is_panic() => {
                broken();
                sleep(PAUSE).await;
            }
            _ => return,
        }
    }
}

async fn put_fences(place: Arc<Place>, fences: Arc<Fences>, mut link: watch::Receiver<Link>) {
    loop {
        let first = fences.waiting().first_key_value().map(|(name, below)| (name.clone(), *below));
        let Some((name, below)) = first else {
            fences.more.notified().await;
            continue;
        };
        let (client, _) = up(&mut link, |_| {}).await;
        match put_fence(&client, &place, &name, below).await {
            Ok(()) => {
                let mut waiting = fences.waiting();
                // A higher one may have been asked for meanwhile.
                if waiting.get(&name) == Some(&below) {
                    waiting.remove(&name);
                }
            }
            Err(_) => rest(&mut link, &client).await,
        }
    }
}

/// In one transaction the fence is raised and the node of whoever is below it removed. So with a fence that is high enough
/// there is nothing left to do: who raised it has removed the node.
async fn put_fence(client: &Client, place: &Place, name: &str, below: u64) -> Result<(), Error> {
    let (fence, node) = (place.fence(name), place.node(name));
    let floor = read(client, &fence).await?.map(|(data, stat)| (decode_fence(&data), stat.version));
    if floor.is_some_and(|(floor, _)| floor >= below) {
        return Ok(());
    }
    let mut writer = client.new_multi_writer();
    raise(&mut writer, &fence, floor, below)?;
    if let Some((data, stat)) = read(client, &node).await?
        && decode(name, &data).map_or(0, |member| member.incarnation) < below
    {
        writer.add_delete(&node, Some(stat.version))?;
    }
    let done = writer.commit().await.map_err(Error::from);
    if let Err(error) = &done
        && overtaken(error)
    {
        client.mkdir(&place.fences, &FOLDER).await?;
    }
    done.map(|_| ())
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks = None;
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // bounded: LEAVE_MAX and CLOSE_MAX
        }
    }
}

fn no_descriptor(problem: std::io::Error) -> MembershipError {
    MembershipError::new(format!(
        "no descriptor for a member or a watch: {problem}; raise the limit of open files (ulimit -n)"
    ))
}

impl Membership for ZooKeeper {
    fn liveness(&self) -> Liveness {
        Liveness::Silence(self.inner.settings.granted())
    }

    fn join(&self, member: &Member) -> Result<Box<dyn Seat>, MembershipError> {
        member.check()?;
        let word = Arc::new(Belled::new(SeatWord::default()).map_err(no_descriptor)?);
        let (leave, leaving) = watch::channel(false);
        let holder = Holder {
            place: Arc::clone(&self.inner.place),
            settings: Arc::clone(&self.inner.settings),
            member: member.clone(),
            word: Arc::clone(&word),
            link: self.inner.link.clone(),
            leaving,
        };
        let (ended, left) = mpsc::sync_channel(1);
        let busy = self.inner.tasks.clone();
        let (said, words) = (Arc::clone(&word), self.inner.settings.broken());
        self.inner.runtime.spawn(async move {
            let broken = || said.change(|word| word.say(SeatChange::Lapsed(words.clone())));
            restarted(move || holder.clone().hold(), broken).await;
            let _ = ended.try_send(());
            drop(busy);
        });
        Ok(Box::new(ZooKeeperSeat { word, leave, left, _inner: Arc::clone(&self.inner) }))
    }

    fn watch(&self) -> Result<Box<dyn Watch>, MembershipError> {
        let roster = Arc::new(Belled::new(Roster::default()).map_err(no_descriptor)?);
        let follower = Follower {
            place: Arc::clone(&self.inner.place),
            settings: Arc::clone(&self.inner.settings),
            roster: Arc::clone(&roster),
            link: self.inner.link.clone(),
        };
        let (told, words) = (Arc::clone(&roster), self.inner.settings.broken());
        let broken = move || {
            told.change(|roster| {
                roster.stale(words.clone());
                roster.has_news()
            });
        };
        let task = self.inner.runtime.spawn(restarted(move || follower.clone().follow(), broken));
        Ok(Box::new(ZooKeeperWatch { roster, task: task.abort_handle(), _inner: Arc::clone(&self.inner) }))
    }

    fn fence(&self, name: &str, incarnation: u64) -> Result<(), MembershipError> {
        check_name("member", name)?;
        let mut waiting = self.inner.fences.waiting();
        if waiting.len() >= FENCES_MAX && !waiting.contains_key(name) {
            return Err(MembershipError::new(format!(
                "{name:?} cannot be fenced: {FENCES_MAX} other fences wait for ZooKeeper ({}) to answer",
                self.inner.settings.servers
            )));
        }
        let below = waiting.entry(name.to_owned()).or_default();
        *below = incarnation.max(*below);
        drop(waiting);
        self.inner.fences.more.notify_one();
        Ok(())
    }
}

struct ZooKeeperSeat {
    word: Arc<Belled<SeatWord>>,
    /// Dropped with the seat, which says the same as true.
    leave: watch::Sender<bool>,
    left: mpsc::Receiver<()>,
    _inner: Arc<Inner>,
}

impl Seat for ZooKeeperSeat {
    fn ready(&self) -> BorrowedFd<'_> {
        self.word.as_fd()
    }
    fn next(&mut self) -> Option<SeatChange> {
        self.word.take(SeatWord::tell)
    }
    fn leave(self: Box<Self>, limit: Duration) -> bool {
        self.leave.send_replace(true);
        self.left.recv_timeout(limit).is_ok()
    }
}

struct ZooKeeperWatch {
    roster: Arc<Belled<Roster>>,
    task: AbortHandle,
    _inner: Arc<Inner>,
}

impl Watch for ZooKeeperWatch {
    fn ready(&self) -> BorrowedFd<'_> {
        self.roster.as_fd()
    }
    fn next(&mut self) -> Option<Change> {
        self.roster.take(Roster::tell)
    }
}

impl Drop for ZooKeeperWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_cannot_be_meant_are_refused_in_words() {
        for good in ["127.0.0.1:2181", "zk1.site-a.org:2181,zk2:2182", "[::1]:2181"] {
            assert_eq!(check_servers(good), Ok(()), "{good}");
        }
        for bad in
            ["", "zk1", "zk1:", "zk1:0", "zk1:70000", "a:1,", "a:1, b:1", "a:1/weir", "[::g]:1", "tcp://a:1"]
        {
            let refused = check_servers(bad).unwrap_err();
            assert!(refused.text.contains("write HOST:PORT"), "{bad:?}: {refused}");
        }
    }

    #[test]
    fn a_service_that_nobody_answers_costs_a_caller_no_time_and_can_be_closed() {
        let group = Group { run: "r1".to_owned(), role: "builders".to_owned() };
        // A reserved port of the loopback interface, where nobody listens.
        let service = ZooKeeper::open("127.0.0.1:1", Duration::from_secs(5), "/weir", &group).unwrap();
        assert_eq!(service.liveness(), Liveness::Silence(Duration::from_secs(5)));
        let mut watch = service.watch().unwrap();
        let member = Member {
            name: "b-0".to_owned(),
            incarnation: 1,
            address: String::new(),
            details: serde_json::Value::Null,
        };
        let mut seat = service.join(&member).unwrap();
        service.fence("b-1", 5).unwrap();
        let readable = |descriptor: BorrowedFd<'_>| {
            weir_sys::poll::wait(descriptor, weir_sys::poll::Interest::Readable, Duration::from_secs(60))
                .unwrap()
        };
        assert!(readable(seat.ready()) && readable(watch.ready()));
        assert!(matches!(seat.next(), Some(SeatChange::Lapsed(_))));
        let mut told = watch.next();
        while !matches!(&told, Some(Change::Stale(why)) if why.contains("is it running")) {
            assert!(matches!(told, None | Some(Change::Stale(_))), "{told:?}");
            readable(watch.ready());
            told = watch.next();
        }
        assert!(!seat.leave(Duration::from_millis(20)), "nobody was told");
        drop(watch);
        drop(service);
    }
}
