//! Who has a node: one watch on the folder and all below it, and what is read on its word.

use crate::line::{Link, Settings, rest, up};
use crate::place::{Place, decode};
use crate::seat::{FOLDER, back, read};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use weir_seams::membership::{MEMBERS_MAX, Roster, is_name};
use weir_sys::bell::Belled;
use weir_sys::clock::monotonic;
use zookeeper_client::{
    AddWatchMode, Client, Error, EventType, PersistentWatcher, SessionState, WatchedEvent,
};

/// Reads on their way at a time when a whole list is read: a round trip for each would take seconds at 1,750 builders.
const READS_MAX: usize = 128;

/// After a session was lost, members have this many session time-outs to come back before they are taken off. A server that has
/// lost its data does not tell: each client finds out by itself, after 1.4 time-outs at most.
const SPARED_TIMEOUTS: u32 = 2;

#[derive(Clone)]
pub(crate) struct Follower {
    pub place: Arc<Place>,
    pub settings: Arc<Settings>,
    pub roster: Arc<Belled<Roster>>,
    pub link: watch::Receiver<Link>,
}

impl Follower {
    fn change(&self, change: impl FnOnce(&mut Roster)) {
        self.roster.change(|roster| {
            change(roster);
            roster.has_news()
        });
    }

    /// Keeps the roster as the service says, for ever.
    pub async fn follow(mut self) {
        // The session in which the list was last whole, and what was said of its time-out.
        let (mut whole_in, mut said) = (None, self.settings.session_timeout);
        loop {
            let follower = self.clone();
            let stale = |why: &str| follower.change(|roster| roster.stale(why));
            let (client, session) = up(&mut self.link, stale).await;
            let granted = self.settings.granted();
            if granted.abs_diff(said) > Duration::from_millis(1) {
                self.say_what_was_granted(granted);
                said = granted;
            }
            let lost = whole_in.is_some_and(|whole_in| whole_in != session);
            let spare = if lost { SPARED_TIMEOUTS * granted } else { Duration::ZERO };
            let Err(error) = self.in_session(&client, spare, || whole_in = Some(session)).await;
            self.change(|roster| roster.stale(self.settings.words(&error)));
            rest(&mut self.link, &client).await;
        }
    }

    fn say_what_was_granted(&self, granted: Duration) {
        let Settings { servers, session_timeout: asked, .. } = &*self.settings;
        self.change(|roster| {
            roster.odd(format!(
                "ZooKeeper ({servers}) grants a session time-out of {granted:?} where {asked:?} was asked for: \
                 set minSessionTimeout and maxSessionTimeout there, or ask for this"
            ));
        });
    }

    async fn in_session(
        &self,
        client: &Client,
        mut spare: Duration,
        mut whole: impl FnMut(),
    ) -> Result<std::convert::Infallible, Error> {
        loop {
            client.mkdir(&self.place.folder, &FOLDER).await?;
            // Watched before it is read, so that nothing is missed between. A lasting watch has no past after a lost connection,
            // and the client (0.11.2) does not set it at the server again: each time it is made anew.
            let mut events = client.watch(&self.place.folder, AddWatchMode::PersistentRecursive).await?;
            self.read_all(client, std::mem::take(&mut spare)).await?;
            whole();
            while self.step(client, &mut events).await? {}
        }
    }

    /// One event or one wake-up. False: the watch is to be made and the whole list to be read again.
    async fn step(&self, client: &Client, events: &mut PersistentWatcher) -> Result<bool, Error> {
        let now = monotonic();
        let wake = self.roster.look(Roster::wake_at).map(|at| at.since(now));
        tokio::select! {
            event = events.changed() => self.on_event(client, events, &event).await,
            () = sleep(wake.unwrap_or(Duration::MAX)), if wake.is_some() => {
                self.change(|roster| roster.on_wake(monotonic()));
                Ok(true)
            }
        }
    }

    async fn on_event(
        &self,
        client: &Client,
        events: &mut PersistentWatcher,
        event: &WatchedEvent,
    ) -> Result<bool, Error> {
        match (event.event_type, event.session_state) {
            (EventType::Session, SessionState::Disconnected) => {
                self.change(|roster| roster.stale(self.settings.words(&Error::ConnectionLoss)));
                back(events).await?;
                Ok(false)
            }
            (EventType::Session, state) if state.is_terminated() => Err(Error::SessionExpired),
            (EventType::Session, _) => Ok(false),
            (EventType::NodeDeleted, _) if event.path == self.place.folder => Ok(false),
            _ => {
                if let Some(name) = self.place.name(&event.path) {
                    let found = read(client, &event.path).await?;
                    self.change(|roster| set(roster, name, found.as_ref().map(|(data, _)| data.as_slice())));
                }
                Ok(true)
            }
        }
    }

    async fn read_all(&self, client: &Client, spare: Duration) -> Result<(), Error> {
        let mut names = client.list_children(&self.place.folder).await?;
        names.sort_unstable();
        let beyond = names.len().saturating_sub(MEMBERS_MAX);
        names.truncate(MEMBERS_MAX);
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(READS_MAX) {
            let paths: Vec<String> = names.iter().map(|name| self.place.node(name)).collect();
            // Each is sent when it is made.
            let reads: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
            for (name, read) in names.iter().zip(reads) {
                match read.await {
                    Ok((data, _)) => found.push((name.clone(), data)),
                    Err(Error::NoNode) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let (members, odd): (Vec<_>, Vec<_>) =
            found.into_iter().map(|(name, data)| decoded(&name, &data)).partition(Result::is_ok);
        self.change(|roster| {
            roster.replace(monotonic(), spare, members.into_iter().flatten());
            if let Some(odd) = odd.into_iter().find_map(Result::err) {
                roster.odd(odd);
            }
            if beyond > 0 {
                roster.odd(format!(
                    "{beyond} nodes below {} are left out: a group has up to {MEMBERS_MAX}",
                    self.place.folder
                ));
            }
            roster.current();
        });
        Ok(())
    }
}

fn decoded(name: &str, data: &[u8]) -> Result<weir_seams::membership::Member, String> {
    let shown = |why: String| {
        format!("the node {:?} is no member: it {why}; remove it", name.chars().take(80).collect::<String>())
    };
    if !is_name(name) {
        return Err(shown("has no name of one".to_owned()));
    }
    decode(name, data).map_err(shown)
}

fn set(roster: &mut Roster, name: &str, data: Option<&[u8]>) {
    match data.map(|data| decoded(name, data)) {
        Some(Ok(member)) => roster.set(member),
        Some(Err(odd)) => {
            roster.remove(name);
            roster.odd(odd);
        }
        None => roster.remove(name),
    }
}
