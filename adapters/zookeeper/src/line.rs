//! One session after the other, for as long as the service is open.

use crate::words;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_client::{Client, Error, SessionState};

/// Between two tries, as everywhere in weir.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Settings {
    pub servers: String,
    /// As asked for.
    pub session_timeout: Duration,
    /// As the server of the present session grants; as asked for before there was one. Nanoseconds.
    granted_ns: AtomicU64,
}

impl Settings {
    pub fn new(servers: String, session_timeout: Duration) -> Self {
        let granted_ns = AtomicU64::new(session_timeout.as_nanos() as u64);
        Settings { servers, session_timeout, granted_ns }
    }
    pub fn granted(&self) -> Duration {
        Duration::from_nanos(self.granted_ns.load(Ordering::Relaxed))
    }
    pub fn words(&self, error: &Error) -> String {
        words::of(&self.servers, error)
    }
    /// For the case that the foreign client has panicked.
    pub fn broken(&self) -> String {
        format!(
            "ZooKeeper ({}) answers what its client cannot read; is it a ZooKeeper server? It is tried again",
            self.servers
        )
    }
}

/// A session, or why there is none.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Away(String),
    Up { client: Client, session: u64 },
}

/// The present session's client, as soon as there is one; `away` hears why not.
pub(crate) async fn up(link: &mut watch::Receiver<Link>, mut away: impl FnMut(&str)) -> (Client, u64) {
    loop {
        match &*link.borrow_and_update() {
            Link::Up { client, session } => return (client.clone(), *session),
            Link::Away(why) => away(why),
        }
        if link.changed().await.is_err() {
            // The service is being closed: whoever waits here is ended from outside.
            std::future::pending::<()>().await;
        }
    }
}

/// After a call has failed in a session: when it makes sense to try again.
pub(crate) async fn rest(link: &mut watch::Receiver<Link>, client: &Client) {
    if client.state().is_terminated() {
        // Another session than the one that ended; returns at once when it is there already.
        let _ = link.changed().await;
    } else {
        sleep(PAUSE).await;
    }
}

/// Begins a session, and another one whenever it has ended.
pub(crate) async fn keep(settings: std::sync::Arc<Settings>, link: std::sync::Arc<watch::Sender<Link>>) {
    let mut session = 0;
    loop {
        let connector =
            Client::connector().with_session_timeout(settings.session_timeout).with_fail_eagerly();
        match connector.connect(&settings.servers).await {
            Ok(client) => {
                session += 1;
                settings.granted_ns.store(client.session_timeout().as_nanos() as u64, Ordering::Relaxed);
                link.send_replace(Link::Up { client: client.clone(), session });
                let error = ended(&client).await;
                link.send_replace(Link::Away(settings.words(&error)));
            }
            Err(error) => {
                link.send_replace(Link::Away(settings.words(&error)));
            }
        }
        // Also after a session: a server that ended each at once would keep a core busy.
        sleep(PAUSE).await;
    }
}

/// Returns when the session is no more.
async fn ended(client: &Client) -> Error {
    let mut states = client.state_watcher();
    let mut state = states.peek_state();
    while !state.is_terminated() {
        // A client whose inner task had died would be silent for ever: ask it now and then.
        tokio::select! {
            changed = states.changed() => state = changed,
            () = sleep(client.session_timeout()) => {
                if let Err(error @ Error::UnexpectedError(_)) = client.check_stat("/").await {
                    return error;
                }
            }
        }
    }
    match state {
        SessionState::AuthFailed => Error::AuthFailed,
        _ => Error::SessionExpired,
    }
}
