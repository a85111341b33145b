//! Writing: a file is written from its beginning to its end, as one request or, of objects, in parts.

use crate::connection::Payload;
use crate::exchange::{Ask, Asker, Flavour, Place, Retried};
use crate::session::{complete, within};
use crate::xml;
use futures_util::future::join_all;
use hyper::body::Bytes;
use hyper::header::ETAG;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use weir_seams::target::{Answer, Buffer, Completion, TargetError};

/// Parts of one file that are under way at once.
const PARTS_AT_ONCE: usize = 4;
/// A server's rule (S3).
const PARTS_MAX: u32 = 10_000;
/// For a buffer whose connection has ended.
const BACK_WITHIN: Duration = Duration::from_millis(200);

/// For a server to forget uploads whose session is gone.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);

/// Uploads in parts that a server has begun with and that have neither been joined nor given up: the path, and the server's number.
#[derive(Default)]
pub struct Uploads(Mutex<BTreeSet<(String, String)>>);

impl Uploads {
    fn all(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
    fn remove(&self, path: &str, id: &str) {
        self.all().remove(&(path.to_owned(), id.to_owned()));
    }
}

/// Gives up all uploads that are under way, where nobody is left to join them: a server keeps the parts of others for ever.
pub async fn forget(asker: &Asker) {
    let uploads = std::mem::take(&mut *asker.uploads.all());
    let all = uploads.iter().map(|(path, id)| asker.tell(given_up(path, id), None));
    tokio::time::timeout(FORGOTTEN_WITHIN, join_all(all)).await.ok();
}

/// AbortMultipartUpload.
fn given_up(path: &str, id: &str) -> Ask {
    let mut ask = Ask::new("DELETE", path);
    ask.query.push(("uploadId", id.to_owned()));
    ask
}

/// What is asked of a file that is written, in order.
pub enum Order {
    Write {
        tag: u64,
        offset: u64,
        buffer: Buffer,
    },
    /// What was written is whole, and there.
    Finish {
        tag: u64,
    },
}

/// A buffer as long as it is sent; then it goes back.
struct Lent {
    buffer: Option<Buffer>,
    back: Option<oneshot::Sender<Buffer>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(buffer), Some(back)) = (self.buffer.take(), self.back.take()) {
            // Whoever gave up does not want it back.
            back.send(buffer).ok();
        }
    }
}

fn lend(buffer: Buffer) -> (Bytes, oneshot::Receiver<Buffer>) {
    let (back, returned) = oneshot::channel();
    (Bytes::from_owner(Lent { buffer: Some(buffer), back: Some(back) }), returned)
}

async fn given_back(returned: oneshot::Receiver<Buffer>) -> Option<Buffer> {
    tokio::time::timeout(BACK_WITHIN, returned).await.ok()?.ok()
}

/// A file that is under way.
enum Under {
    Request { pieces: mpsc::Sender<Bytes>, answer: JoinHandle<Result<(), TargetError>> },
    Parts(Parts),
}

#[derive(Default)]
struct Parts {
    id: Option<String>,
    /// What is too small for a part of its own.
    held: Vec<u8>,
    begun: u32,
    sent: JoinSet<Result<(u32, String), TargetError>>,
    tags: Vec<(u32, String)>,
    failed: Option<TargetError>,
}

struct Writer {
    asker: Arc<Asker>,
    path: String,
    /// Where it was opened.
    at: Option<Place>,
    done: UnboundedSender<Completion>,
    under: Option<Under>,
    /// Where the next byte belongs.
    next: u64,
}

/// Carries out the orders for one file until nobody gives more.
pub async fn write(
    asker: Arc<Asker>,
    (path, at): (String, Option<Place>),
    mut orders: UnboundedReceiver<Order>,
    done: UnboundedSender<Completion>,
) {
    let mut writer = Writer { asker, path, at, done, under: None, next: 0 };
    while let Some(order) = orders.recv().await {
        match order {
            Order::Write { tag, offset, buffer } => writer.write(tag, offset, buffer).await,
            Order::Finish { tag } => {
                let result = writer.finish().await.map(|()| Answer::Done);
                complete(&writer.done, tag, result, None, 0);
            }
        }
    }
}

impl Writer {
    async fn write(&mut self, tag: u64, offset: u64, buffer: Buffer) {
        // From the beginning again: what was written until now is whole.
        if offset == 0
            && self.next > 0
            && let Err(error) = self.finish().await
        {
            return complete(&self.done, tag, Err(error), Some(buffer), 0);
        }
        if offset != self.next {
            let text = format!(
                "{}: written at {offset} where {} is next: such a server takes a file from its beginning to its end alone",
                self.path, self.next
            );
            return complete(&self.done, tag, Err(TargetError::coded("EOPNOTSUPP", text)), Some(buffer), 0);
        }
        let length = buffer.len() as u64;
        if self.under.is_none() {
            self.under = Some(match &self.asker.flavour {
                Flavour::Objects { .. } => Under::Parts(Parts::default()),
                _ => self.request(),
            });
        }
        let limit = self.asker.limit;
        let (result, buffer) = match &mut self.under {
            Some(Under::Request { pieces, answer }) => {
                let (bytes, returned) = lend(buffer);
                let sent = async {
                    pieces.send(bytes).await.ok();
                    returned.await
                };
                tokio::select! {
                    back = tokio::time::timeout(limit, sent) => match back {
                        Ok(Ok(buffer)) if !answer.is_finished() => (Ok(()), Some(buffer)),
                        Ok(back) => (Err(ended(answer).await), back.ok()),
                        Err(_) => (Err(TargetError::coded("ETIMEDOUT", "the server does not take what is written")), None),
                    },
                    early = &mut *answer => (Err(early_end(early)), None),
                }
            }
            Some(Under::Parts(parts)) => {
                let Flavour::Objects { part_bytes, .. } = &self.asker.flavour else { return };
                let part_bytes = *part_bytes;
                if parts.held.is_empty() && buffer.len() >= part_bytes {
                    match within(limit, parts.begin(&self.asker, &self.path)).await {
                        Ok(()) => {
                            self.next += length;
                            return parts.send_buffer(&self.asker, &self.path, &self.done, tag, buffer);
                        }
                        Err(error) => (Err(error), Some(buffer)),
                    }
                } else {
                    parts.held.extend_from_slice(&buffer);
                    let sent = if parts.held.len() >= part_bytes {
                        within(limit, parts.send_held(&self.asker, &self.path)).await
                    } else {
                        Ok(())
                    };
                    (sent, Some(buffer))
                }
            }
            None => return,
        };
        match result {
            Ok(()) => {
                self.next += length;
                complete(&self.done, tag, Ok(Answer::Moved { bytes: length }), buffer, 0);
            }
            Err(error) => {
                self.give_up().await;
                complete(&self.done, tag, Err(error), buffer, 0);
            }
        }
    }

    /// A request whose content is what is written.
    fn request(&self) -> Under {
        let (pieces, payload) = mpsc::channel(1);
        let (asker, mut ask) = (Arc::clone(&self.asker), Ask::new("PUT", &self.path));
        ask.payload = Payload::Pieces(payload);
        let at = self.at.clone();
        let answer = tokio::spawn(async move { asker.tell(ask, at).await.map(drop) });
        Under::Request { pieces, answer }
    }

    async fn finish(&mut self) -> Result<(), TargetError> {
        self.next = 0;
        let limit = self.asker.limit;
        let finished = async {
            match self.under.take() {
                None => Ok(()),
                Some(Under::Request { pieces, answer }) => {
                    drop(pieces);
                    answer.await.unwrap_or_else(|_| Err(TargetError::coded("ECANCELED", "given up")))
                }
                Some(Under::Parts(parts)) => parts.finish(&self.asker, &self.path).await,
            }
        };
        let late = TargetError::coded("ETIMEDOUT", "the server does not say that the file is there");
        tokio::time::timeout(limit, finished).await.unwrap_or(Err(late))
    }

    async fn give_up(&mut self) {
        self.next = 0;
        if let Some(Under::Parts(parts)) = self.under.take() {
            parts.abort(&self.asker, &self.path).await;
        }
    }
}

fn early_end(early: Result<Result<(), TargetError>, tokio::task::JoinError>) -> TargetError {
    match early {
        Ok(Err(error)) => error,
        _ => TargetError::coded("EPROTO", "the server answered before all was written"),
    }
}

async fn ended(answer: &mut JoinHandle<Result<(), TargetError>>) -> TargetError {
    early_end(answer.await)
}

impl Parts {
    /// An upload in parts has a number of the server's (CreateMultipartUpload).
    async fn begin(&mut self, asker: &Asker, path: &str) -> Result<(), TargetError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.id.is_none() {
            let mut ask = Ask::new("POST", path);
            ask.query.push(("uploads", String::new()));
            let texts = asker.xml(asker.ask(ask, None).await?).await?;
            let id = xml::first(&texts, "InitiateMultipartUploadResult/UploadId").map(str::to_owned);
            let id =
                id.ok_or_else(|| TargetError::coded("EPROTO", format!("{path}: the upload has no number")))?;
            asker.uploads.all().insert((path.to_owned(), id.clone()));
            self.id = Some(id);
        }
        if self.begun >= PARTS_MAX {
            let text = format!("{path}: more than {PARTS_MAX} parts; say a larger `part`");
            return Err(TargetError::coded("EFBIG", text));
        }
        Ok(())
    }

    fn ask(&mut self, path: &str, bytes: Bytes) -> (u32, Ask) {
        self.begun += 1;
        let mut ask = Ask::new("PUT", path);
        ask.query.push(("partNumber", self.begun.to_string()));
        ask.query.push(("uploadId", self.id.clone().unwrap_or_default()));
        ask.payload = Payload::Whole(bytes);
        (self.begun, ask)
    }

    async fn send_held(&mut self, asker: &Arc<Asker>, path: &str) -> Result<(), TargetError> {
        self.begin(asker, path).await?;
        let bytes = Bytes::from(std::mem::take(&mut self.held));
        let (number, ask) = self.ask(path, bytes);
        let asker = Arc::clone(asker);
        self.sent.spawn(async move { part(&asker, number, ask).await });
        while self.sent.len() > PARTS_AT_ONCE {
            self.reap().await?;
        }
        Ok(())
    }

    /// As many at once as there are buffers: each is done when the server has it.
    fn send_buffer(
        &mut self,
        asker: &Arc<Asker>,
        path: &str,
        done: &UnboundedSender<Completion>,
        tag: u64,
        buffer: Buffer,
    ) {
        let length = buffer.len() as u64;
        let (bytes, returned) = lend(buffer);
        let (number, ask) = self.ask(path, bytes);
        let (asker, done) = (Arc::clone(asker), done.clone());
        self.sent.spawn(async move {
            let result = within(asker.limit, part(&asker, number, ask)).await;
            let told = result.clone().map(|_| Answer::Moved { bytes: length });
            complete(&done, tag, told, given_back(returned).await, 0);
            result
        });
    }

    async fn reap(&mut self) -> Result<(), TargetError> {
        match self.sent.join_next().await {
            Some(Ok(Ok(tag))) => self.tags.push(tag),
            Some(Ok(Err(error))) => return Err(error),
            Some(Err(_)) => return Err(TargetError::coded("ECANCELED", "given up")),
            None => {}
        }
        Ok(())
    }

    async fn finish(mut self, asker: &Arc<Asker>, path: &str) -> Result<(), TargetError> {
        if self.id.is_none() {
            let mut ask = Ask::new("PUT", path);
            ask.payload = Payload::Whole(Bytes::from(self.held));
            return asker.tell(ask, None).await.map(drop);
        }
        let all = self.complete(asker, path).await;
        if all.is_err() {
            self.abort(asker, path).await;
        }
        all
    }

    async fn complete(&mut self, asker: &Arc<Asker>, path: &str) -> Result<(), TargetError> {
        if !self.held.is_empty() {
            self.send_held(asker, path).await?;
        }
        while !self.sent.is_empty() {
            self.reap().await?;
        }
        self.tags.sort_unstable();
        let mut text = String::from("<CompleteMultipartUpload>");
        for (number, tag) in &self.tags {
            text += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        text += "</CompleteMultipartUpload>";
        let mut ask = Ask::new("POST", path);
        ask.query.push(("uploadId", self.id.clone().unwrap_or_default()));
        ask.payload = Payload::Whole(Bytes::from(text));
        let texts = asker.xml(asker.ask(ask, None).await?).await?;
        // A server that takes its time says yes first, and then perhaps no.
        match xml::first(&texts, "Error/Code") {
            Some(code) => Err(TargetError::coded("EIO", format!("{path}: the parts are not joined: {code}"))),
            None => {
                asker.uploads.remove(path, self.id.as_deref().unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Parts that lead to nothing are not kept by the server.
    async fn abort(mut self, asker: &Asker, path: &str) {
        self.sent.abort_all();
        if let Some(id) = self.id.take() {
            let told = tokio::time::timeout(
                asker.limit.min(BACK_WITHIN * 10),
                asker.tell(given_up(path, &id), None),
            )
            .await;
            if matches!(told, Ok(Ok(_))) {
                asker.uploads.remove(path, &id);
            }
        }
    }
}

/// One part; gives the tag that the server has for it.
async fn part(asker: &Asker, number: u32, ask: Ask) -> Result<(u32, String), TargetError> {
    let path = ask.path.clone();
    let heard = asker.ask(ask, None).await?;
    let retries = heard.retries;
    let tag = heard.response.headers().get(ETAG).and_then(|it| it.to_str().ok()).map(str::to_owned);
    asker.said(heard, 1 << 16).await?;
    let none = || TargetError::coded("EPROTO", format!("{path}: part {number} has no tag")).retried(retries);
    tag.map(|tag| (number, tag)).ok_or_else(none)
}
