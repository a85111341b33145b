//! A member's node: made, watched, made again, given up.

use crate::line::{Link, Settings, rest, up};
use crate::place::{Place, decode, decode_fence, encode};
use std::sync::Arc;
use tokio::sync::watch;
use weir_seams::membership::{Member, SeatChange, SeatWord};
use weir_sys::bell::Belled;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType, MultiWriter, PersistentWatcher,
    SessionState, Stat,
};

pub(crate) const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const NODE: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// Transactions that may fail in a row because someone else was faster, before there is a pause.
const TRIES_MAX: u32 = 16;

#[derive(Clone)]
pub(crate) struct Holder {
    pub place: Arc<Place>,
    pub settings: Arc<Settings>,
    pub member: Member,
    pub word: Arc<Belled<SeatWord>>,
    pub link: watch::Receiver<Link>,
    /// True once the seat is given up.
    pub leaving: watch::Receiver<bool>,
}

enum Taken {
    /// The transaction that made our node.
    Held(i64),
    Fenced,
}

enum End {
    Fenced,
    Left,
}

/// What stands at a path, if anything does.
pub(crate) async fn read(client: &Client, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Error> {
    match client.get_data(path).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Someone else has changed what the transaction rests on: read again and try again.
pub(crate) fn overtaken(error: &Error) -> bool {
    matches!(error, Error::BadVersion | Error::NodeExists | Error::NoNode)
}

impl Holder {
    /// Holds the seat until it is fenced or given up, from session to session.
    pub async fn hold(mut self) {
        loop {
            let word = Arc::clone(&self.word);
            let lapse = |why: &str| word.change(|word| word.say(SeatChange::Lapsed(why.to_owned())));
            let mut leaving = self.leaving.clone();
            let client = tokio::select! {
                (client, _) = up(&mut self.link, lapse) => client,
                // The node, if there is one, ends with its session or is removed when there is one again.
                () = given_up(&mut leaving) => return self.remove_later().await,
            };
            match self.in_session(&client).await {
                Ok(End::Fenced | End::Left) => return,
                Err(error) => {
                    lapse(&self.settings.words(&error));
                    tokio::select! {
                        () = rest(&mut self.link, &client) => {}
                        () = given_up(&mut leaving) => {}
                    }
                }
            }
        }
    }

    async fn in_session(&mut self, client: &Client) -> Result<End, Error> {
        client.mkdir(&self.place.folder, &FOLDER).await?;
        client.mkdir(&self.place.fences, &FOLDER).await?;
        let node = self.place.node(&self.member.name);
        loop {
            // Watched before it is made, so that nothing is missed between; anew after each lost connection, as in `watch`.
            let mut events = client.watch(&node, AddWatchMode::Persistent).await?;
            if let Some(end) = self.connected(client, &node, &mut events).await? {
                return Ok(end);
            }
            let why = self.settings.words(&Error::ConnectionLoss);
            self.word.change(|word| word.say(SeatChange::Lapsed(why)));
            back(&mut events).await?;
        }
    }

    /// `None`: the connection is lost.
    async fn connected(
        &mut self,
        client: &Client,
        node: &str,
        events: &mut PersistentWatcher,
    ) -> Result<Option<End>, Error> {
        loop {
            let made_by = match self.take(client, node).await? {
                Taken::Held(made_by) => made_by,
                Taken::Fenced => return Ok(Some(End::Fenced)),
            };
            self.word.change(|word| word.say(SeatChange::Held));
            tokio::select! {
                connected = something_changed(events) => {
                    if !connected? {
                        return Ok(None);
                    }
                }
                () = given_up(&mut self.leaving) => {
                    self.remove(client, node, Some(made_by)).await?;
                    return Ok(Some(End::Left));
                }
            }
        }
    }

    fn fenced(&self, by: u64, why: &str) -> Taken {
        self.word.change(|word| word.say(SeatChange::Fenced { by, why: why.to_owned() }));
        Taken::Fenced
    }

    /// Makes the node, if it is not ours already.
    async fn take(&self, client: &Client, node: &str) -> Result<Taken, Error> {
        let own = self.member.incarnation;
        let fence = self.place.fence(&self.member.name);
        let mut last = Error::BadVersion;
        for _ in 0..TRIES_MAX {
            let found_fence = read(client, &fence).await?;
            let floor = found_fence.as_ref().map(|(data, stat)| (decode_fence(data), stat.version));
            if let Some((floor, _)) = floor.filter(|(floor, _)| *floor > own) {
                return Ok(self.fenced(floor, "a later incarnation has had the name, or this one was fenced"));
            }
            let mut writer = client.new_multi_writer();
            raise(&mut writer, &fence, floor, own)?;
            if let Some((data, stat)) = read(client, node).await? {
                let theirs = decode(&self.member.name, &data).ok();
                let ours = stat.ephemeral_owner == client.session_id().0;
                match theirs {
                    Some(theirs) if theirs.incarnation > own => {
                        return Ok(self.fenced(theirs.incarnation, "a later incarnation has the name"));
                    }
                    Some(theirs)
                        if ours && theirs == self.member && floor.is_some_and(|(floor, _)| floor == own) =>
                    {
                        return Ok(Taken::Held(stat.czxid));
                    }
                    Some(theirs)
                        if !ours && theirs.incarnation == own && theirs.address != self.member.address =>
                    {
                        let why =
                            format!("another one at {} has the same name and incarnation", theirs.address);
                        return Ok(self.fenced(own, &why));
                    }
                    // An older one's, our own of an earlier session, or nothing that means anything.
                    _ => writer.add_delete(node, Some(stat.version))?,
                }
            }
            writer.add_create(node, &encode(&self.member), &NODE)?;
            match writer.commit().await.map_err(Error::from) {
                Ok(_) => {} // and read again: what we hold is what stands there
                Err(error) if overtaken(&error) => {
                    // The folders themselves may be gone.
                    if error == Error::NoNode {
                        client.mkdir(&self.place.folder, &FOLDER).await?;
                        client.mkdir(&self.place.fences, &FOLDER).await?;
                    }
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Takes our own node away; one that another made meanwhile stays.
    async fn remove(&self, client: &Client, node: &str, made_by: Option<i64>) -> Result<(), Error> {
        let Some((data, stat)) = read(client, node).await? else { return Ok(()) };
        let ours = match made_by {
            Some(made_by) => stat.czxid == made_by,
            None => decode(&self.member.name, &data).is_ok_and(|theirs| theirs == self.member),
        };
        if !ours {
            return Ok(());
        }
        match client.delete(node, Some(stat.version)).await {
            Err(error) if !overtaken(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn remove_later(mut self) {
        let node = self.place.node(&self.member.name);
        loop {
            let (client, _) = up(&mut self.link, |_| {}).await;
            match self.remove(&client, &node, None).await {
                Ok(()) => return,
                Err(_) => rest(&mut self.link, &client).await,
            }
        }
    }
}

/// Into a transaction: nobody below `own` may have the name from now on, and nobody else changes that meanwhile.
/// `floor`: what the fence says, and its version.
pub(crate) fn raise(
    writer: &mut MultiWriter<'_>,
    fence: &str,
    floor: Option<(u64, i32)>,
    own: u64,
) -> Result<(), Error> {
    let text = own.to_string();
    match floor {
        None => writer.add_create(fence, text.as_bytes(), &FOLDER),
        Some((floor, version)) if floor == own => writer.add_check_version(fence, version),
        Some((_, version)) => writer.add_set_data(fence, text.as_bytes(), Some(version)),
    }
}

/// False: the connection is lost, and may come back. Errors: the session has ended; no event follows.
async fn something_changed(events: &mut PersistentWatcher) -> Result<bool, Error> {
    let event = events.changed().await;
    match (event.event_type, event.session_state) {
        (EventType::Session, SessionState::Disconnected) => Ok(false),
        (EventType::Session, state) if state.is_terminated() => Err(Error::SessionExpired),
        _ => Ok(true),
    }
}

async fn given_up(leaving: &mut watch::Receiver<bool>) {
    // An error means that the seat is no more.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

/// Waits until the session is connected again. Errors: it has ended.
pub(crate) async fn back(events: &mut PersistentWatcher) -> Result<(), Error> {
    loop {
        let event = events.changed().await;
        match (event.event_type, event.session_state) {
            (EventType::Session, SessionState::SyncConnected | SessionState::ConnectedReadOnly) => {
                return Ok(());
            }
            (EventType::Session, state) if state.is_terminated() => return Err(Error::SessionExpired),
            _ => {}
        }
    }
}
