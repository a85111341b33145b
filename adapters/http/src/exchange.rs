//! One question and its answer: what each operation asks of each kind of server, and what is made of what it says.

use crate::connection::{Connections, Payload};
use crate::place::{Origin, as_written, escaped, unescaped};
use crate::ranges::{Parts, Wanted, range};
use crate::sign::{self, Key};
use crate::upload::Uploads;
use crate::xml;
use futures_util::future::try_join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, LOCATION, RANGE, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_rustls::rustls;
use weir_seams::target::{Buffer, Piece, TargetError};
use weir_sys::clock;

/// Redirects that one request follows before it is taken to go in a circle.
const REDIRECTS_MAX: u32 = 8;
/// Longest answer beside the content of files.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Of a refusal so much is read, for its reason.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// How often a request whose kept connection ended is sent once more, unless a load says how often any is.
const RETRIES_MAX: u32 = 3;
/// Whoever asks to be asked again without saying when is asked after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// Ranges of one request: servers take heads of 8 KiB, and some give whole files from 200 ranges on.
const RANGES_MAX: usize = 128;
/// A file no longer than this may come whole where parts of it were asked for.
const WHOLE_BYTES_MAX: u64 = 256 << 10;

pub enum Flavour {
    Web,
    Dav,
    Objects { key: Key, bucket: String, part_bytes: usize },
}

/// A question, as often as it must be asked.
pub struct Ask {
    pub method: &'static str,
    /// As it is written in the request.
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(hyper::header::HeaderName, String)>,
    pub payload: Payload,
}

impl Ask {
    pub fn new(method: &'static str, path: &str) -> Ask {
        let path = path.to_owned();
        Ask { method, path, query: Vec::new(), headers: Vec::new(), payload: Payload::None }
    }
}

/// The head of an answer that is worth reading on, and what it came on.
pub struct Heard {
    pub response: Response<Incoming>,
    carried: crate::connection::Carried,
    /// On the host's monotonic clock.
    pub first_byte_ns: u64,
    pub retries: u32,
    /// Where it came from: where a redirect led to, if one did.
    pub at: Place,
}

/// A server, and the path of a request to it.
pub type Place = (Origin, String);

/// What is at a path.
pub struct Info {
    pub size_bytes: u64,
    pub is_folder: bool,
}

/// What all operations of a session share.
pub struct Asker {
    /// Servers of the same files. Each file is opened at the next of them.
    origins: Vec<Origin>,
    next: AtomicUsize,
    /// The path of the target; of objects without a slash in front.
    base: String,
    pub flavour: Flavour,
    connections: Connections,
    room: Semaphore,
    /// After which an operation has failed.
    pub limit: Duration,
    retries_max: Option<u32>,
    pub uploads: Uploads,
}

/// Where a file is, as long as it is open.
pub struct Spot {
    pub path: String,
    /// Where it was opened, or where a redirect led to then.
    at: Mutex<Option<Place>>,
}

impl Spot {
    pub fn new(path: String, at: Place) -> Spot {
        Spot { path, at: Mutex::new(Some(at)) }
    }
    pub fn at(&self) -> std::sync::MutexGuard<'_, Option<Place>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        text = format!("{text}: {deeper}");
        source = deeper.source();
    }
    text
}

impl Asker {
    /// With the connections goes how many there are at most, with the time how often a request is sent once more.
    pub fn new(
        origins: Vec<Origin>,
        base: String,
        flavour: Flavour,
        (connections, most): (Connections, usize),
        (timeout, retries_max): (Duration, Option<u32>),
    ) -> Asker {
        Asker {
            connections,
            origins,
            next: AtomicUsize::new(0),
            base,
            flavour,
            room: Semaphore::new(most.min(Semaphore::MAX_PERMITS)),
            // Told by whoever knows why, before the load gives up by itself.
            limit: timeout / 10 * 9,
            retries_max,
            uploads: Uploads::default(),
        }
    }

    /// The path of a request for `name` below the target.
    pub fn path(&self, name: &str) -> String {
        match &self.flavour {
            Flavour::Objects { bucket, .. } => {
                format!("/{}/{}", escaped(bucket, false), escaped(&self.key(name), true))
            }
            _ if name.is_empty() => as_written(&self.base),
            _ => as_written(&format!("{}/{name}", self.base.trim_end_matches('/'))),
        }
    }

    fn key(&self, name: &str) -> String {
        match (self.base.as_str(), name) {
            (base, "") => base.to_owned(),
            ("", name) => name.to_owned(),
            (base, name) => format!("{}/{name}", base.trim_end_matches('/')),
        }
    }

    fn next_origin(&self) -> Origin {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.origins[turn % self.origins.len()].clone()
    }

    /// Asks, where a redirect leads to too, and again where the connection ended before an answer.
    ///
    /// Errors: no answer, or one that is not read on.
    pub async fn ask(&self, ask: Ask, at: Option<Place>) -> Result<Heard, TargetError> {
        let _room = self.room.acquire().await;
        let (mut origin, mut path) = at.unwrap_or_else(|| (self.next_origin(), ask.path.clone()));
        let (mut redirects, mut retries) = (0, 0);
        let payload = ask.payload.again();
        let mut first = Some(ask.payload);
        loop {
            // Where all is said once, no connection that may have ended is trusted with it.
            let is_last = payload.is_none();
            let Some(sent) = first.take().or_else(|| payload.as_ref().and_then(Payload::again)) else {
                return Err(TargetError::coded("EPIPE", "the server ended the connection").retried(retries));
            };
            let taken = self.connections.take(&origin, is_last || retries > 0).await;
            let mut carried = taken.map_err(|error| {
                let code = weir_sys::errno::name(&error).unwrap_or("EPROTO");
                let of_tls = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                let is_garbled = matches!(of_tls, Some(rustls::Error::InvalidMessage(_)));
                let hint = if is_garbled { "; does it speak TLS there?" } else { "" };
                TargetError::coded(code, format!("{origin}: cannot connect: {error}{hint}")).retried(retries)
            })?;
            let request = self.request(ask.method, &origin, &path, &ask.query, &ask.headers, sent)?;
            let response = match carried.send(request).await {
                Ok(response) => response,
                Err((error, unsent)) => {
                    if let Some(unsent) = unsent {
                        first = Some(unsent.into_body());
                    }
                    let is_ended = (carried.is_reused || self.retries_max.is_some())
                        && (error.is_incomplete_message() || error.is_closed() || error.is_canceled());
                    if retries < self.retries_max.unwrap_or(RETRIES_MAX)
                        && is_ended
                        && (first.is_some() || payload.is_some())
                    {
                        retries += 1;
                        continue;
                    }
                    let code = if error.is_parse() { "EPROTO" } else { "ECONNRESET" };
                    let text = format!("{origin}: no answer that is understood: {}", in_words(&error));
                    return Err(TargetError::coded(code, text).retried(retries));
                }
            };
            let first_byte_ns = clock::monotonic().as_ns();
            let status = response.status();
            let location =
                response.headers().get(LOCATION).and_then(|it| it.to_str().ok()).map(str::to_owned);
            if let Some(location) = location.filter(|_| status.is_redirection() && payload.is_some()) {
                redirects += 1;
                if redirects > REDIRECTS_MAX {
                    let text =
                        format!("redirected {REDIRECTS_MAX} times, last to {location}: it goes in a circle");
                    return Err(TargetError::coded("ELOOP", text).retried(retries));
                }
                let (to, there) = if location.starts_with('/') {
                    (origin.clone(), location.clone())
                } else {
                    Origin::with_path(&location).map_err(|problem| {
                        TargetError::coded(
                            "EPROTO",
                            format!("{origin}: redirected to {location:?}: {problem}"),
                        )
                    })?
                };
                if there == format!("{path}/") {
                    let text = format!("{path} is a folder");
                    return Err(TargetError::coded("EISDIR", text).retried(retries));
                }
                self.read_small(response, carried, REFUSAL_BYTES_MAX).await.ok();
                (origin, path) = (to, there);
                continue;
            }
            let later = response.headers().get(RETRY_AFTER).cloned();
            if let Some(later) = later.filter(|_| payload.is_some() && matches!(status.as_u16(), 429 | 503)) {
                let seconds = later.to_str().ok().and_then(|it| it.trim().parse().ok());
                self.read_small(response, carried, REFUSAL_BYTES_MAX).await.ok();
                // The operation's own limit ends this.
                tokio::time::sleep(seconds.map_or(AGAIN, Duration::from_secs)).await;
                retries += 1;
                continue;
            }
            return Ok(Heard { response, carried, first_byte_ns, retries, at: (origin, path) });
        }
    }

    fn request(
        &self,
        method: &str,
        origin: &Origin,
        path: &str,
        query: &[(&'static str, String)],
        headers: &[(hyper::header::HeaderName, String)],
        payload: Payload,
    ) -> Result<Request<Payload>, TargetError> {
        let target = match query.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", sign::query_text(query)),
        };
        let host = origin.to_string();
        let mut built = Request::builder().method(method).uri(target);
        if let Flavour::Objects { key, .. } = &self.flavour {
            for (name, value) in sign::headers(key, method, &host, path, query, jiff::Timestamp::now()) {
                built = built.header(name, value);
            }
        }
        if matches!(payload, Payload::None) && matches!(method, "PUT" | "POST") {
            built = built.header(CONTENT_LENGTH, "0");
        }
        built = built.header(HOST, host);
        for (name, value) in headers {
            built = built.header(name, value);
        }
        built
            .body(payload)
            .map_err(|error| TargetError::coded("EINVAL", format!("{path}: no request: {error}")))
    }

    /// The rest of an answer that is short.
    async fn read_small(
        &self,
        response: Response<Incoming>,
        carried: crate::connection::Carried,
        most: usize,
    ) -> Result<Vec<u8>, TargetError> {
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&carried.origin, &error))?;
            let data = frame.into_data().unwrap_or_default();
            if bytes.len() + data.len() > most {
                let text = format!("{}: an answer of more than {most} bytes", carried.origin);
                return Err(TargetError::coded("EPROTO", text));
            }
            bytes.extend_from_slice(&data);
        }
        self.connections.keep(carried);
        Ok(bytes)
    }

    /// What it says where it says yes. Errors: it says no, with its reason.
    pub async fn said(&self, heard: Heard, most: usize) -> Result<Vec<u8>, TargetError> {
        let (status, retries) = (heard.response.status(), heard.retries);
        if status.is_success() {
            return self
                .read_small(heard.response, heard.carried, most)
                .await
                .map_err(|it| it.retried(retries));
        }
        let origin = heard.carried.origin.to_string();
        let why = self.read_small(heard.response, heard.carried, REFUSAL_BYTES_MAX).await.unwrap_or_default();
        Err(refusal(&origin, status, &why).retried(retries))
    }

    /// A question without an answer to read; where it was asked. Errors: it is refused.
    pub async fn tell(&self, ask: Ask, at: Option<Place>) -> Result<Place, TargetError> {
        let heard = self.ask(ask, at).await?;
        let at = heard.at.clone();
        self.said(heard, ANSWER_BYTES_MAX).await.map(|_| at)
    }

    /// Errors: nothing is there, or it is not told.
    pub async fn info(&self, name: &str) -> Result<Info, TargetError> {
        let path = self.path(name);
        match &self.flavour {
            Flavour::Dav => {
                let found = self.found(&path, "0").await?;
                found.into_iter().next().map(|(_, info)| info).ok_or_else(|| {
                    TargetError::coded("EPROTO", format!("{path}: the server says nothing of it"))
                })
            }
            Flavour::Web => match self.head(&path).await {
                Ok((size_bytes, _)) => Ok(Info { size_bytes, is_folder: path.ends_with('/') }),
                Err(error) if error.code.as_deref() == Some("EISDIR") => {
                    Ok(Info { size_bytes: 0, is_folder: true })
                }
                // A folder whose list is not given is one all the same.
                Err(error)
                    if path.ends_with('/')
                        && !error.is_missing()
                        && error.code.as_deref() == Some("EACCES") =>
                {
                    Ok(Info { size_bytes: 0, is_folder: true })
                }
                Err(error) => Err(error),
            },
            Flavour::Objects { .. } => {
                let key = self.key(name);
                if key.is_empty() || key.ends_with('/') {
                    // A bucket that is not there is told; what is below a prefix needs not to exist.
                    self.listed(&key, 1).await?;
                    return Ok(Info { size_bytes: 0, is_folder: true });
                }
                match self.head(&path).await {
                    Ok((size_bytes, _)) => Ok(Info { size_bytes, is_folder: false }),
                    Err(error) if error.is_missing() => {
                        match self.listed(&format!("{key}/"), 1).await?.is_empty() {
                            true => Err(error),
                            false => Ok(Info { size_bytes: 0, is_folder: true }),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The size that the server says, and which one that was. Errors: it says none.
    pub async fn head(&self, path: &str) -> Result<(u64, Place), TargetError> {
        let heard = self.ask(Ask::new("HEAD", path), None).await?;
        let length = heard.length();
        let at = heard.at.clone();
        self.said(heard, 0).await?;
        let unsaid = || TargetError::coded("EPROTO", format!("{}: {path}: no length is said", at.0));
        Ok((length.ok_or_else(unsaid)?, at))
    }

    /// Errors: what is no folder, or cannot be listed.
    pub async fn list(&self, name: &str) -> Result<Vec<String>, TargetError> {
        match &self.flavour {
            Flavour::Web => {
                Err(TargetError::coded("EOPNOTSUPP", "a web server has no list of its files; try dav://"))
            }
            Flavour::Dav => {
                let path = self.path(name);
                let own = unescaped(path.trim_matches('/'));
                let found = self.found(&path, "1").await?;
                let last = |(href, _): (String, Info)| {
                    let there = unescaped(href.trim_matches('/'));
                    let below = there.strip_prefix(&own)?.trim_start_matches('/').to_owned();
                    (!below.is_empty()).then_some(below)
                };
                Ok(found.into_iter().filter_map(last).collect())
            }
            Flavour::Objects { .. } => {
                let key = self.key(name);
                let prefix = if key.is_empty() || key.ends_with('/') { key } else { format!("{key}/") };
                let found = self.listed(&prefix, usize::MAX).await?;
                Ok(found.into_iter().map(|it| it[prefix.len()..].trim_end_matches('/').to_owned()).collect())
            }
        }
    }

    /// What a WebDAV server says of a path and, with `depth` 1, of what is in it (RFC 4918, 9.1).
    async fn found(&self, path: &str, depth: &str) -> Result<Vec<(String, Info)>, TargetError> {
        let mut ask = Ask::new("PROPFIND", path);
        ask.headers.push((hyper::header::HeaderName::from_static("depth"), depth.to_owned()));
        let heard = self.ask(ask, None).await?;
        let texts = self.xml(heard).await?;
        let mut found: Vec<(String, Info)> = Vec::new();
        for (name, text) in texts {
            match name.as_str() {
                "response/href" => {
                    let path = Origin::with_path(text.trim())
                        .map_or_else(|_| text.trim().to_owned(), |(_, path)| path);
                    found.push((path, Info { size_bytes: 0, is_folder: false }));
                }
                "prop/getcontentlength" => {
                    if let (Some((_, info)), Ok(size)) = (found.last_mut(), text.trim().parse()) {
                        info.size_bytes = size;
                    }
                }
                "resourcetype/collection" => {
                    if let Some((_, info)) = found.last_mut() {
                        *info = Info { size_bytes: 0, is_folder: true };
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Keys below a prefix, and what is below them in one (ListObjectsV2).
    async fn listed(&self, prefix: &str, most: usize) -> Result<Vec<String>, TargetError> {
        let Flavour::Objects { bucket, .. } = &self.flavour else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let mut ask = Ask::new("GET", &format!("/{}", escaped(bucket, false)));
            ask.query.push(("list-type", "2".to_owned()));
            ask.query.push(("delimiter", "/".to_owned()));
            ask.query.push(("prefix", prefix.to_owned()));
            ask.query.push(("max-keys", most.min(1_000).to_string()));
            ask.query.extend(from.take().map(|token| ("continuation-token", token)));
            let texts = self.xml(self.ask(ask, None).await?).await?;
            let before = found.len();
            for (name, text) in &texts {
                let is_below = text.starts_with(prefix) && text.len() > prefix.len();
                if is_below && matches!(name.as_str(), "Contents/Key" | "CommonPrefixes/Prefix") {
                    found.push(text.clone());
                }
            }
            from = xml::first(&texts, "ListBucketResult/NextContinuationToken").map(str::to_owned);
            if from.is_none() || found.len() >= most || found.len() == before {
                return Ok(found);
            }
        }
    }

    /// An answer in XML. Errors: it is a refusal, or no XML.
    pub async fn xml(&self, heard: Heard) -> Result<Vec<(String, String)>, TargetError> {
        let origin = heard.carried.origin.to_string();
        let bytes = self.said(heard, ANSWER_BYTES_MAX).await?;
        xml::texts(&bytes).map_err(|problem| TargetError::coded("EPROTO", format!("{origin}: {problem}")))
    }

    /// Reads a range into `buffer`. Gives the bytes that there were, and when the first came.
    ///
    /// Errors: another range or length came than was asked for, or none.
    pub async fn read(
        &self,
        spot: &Spot,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(u64, u64), TargetError> {
        if buffer.is_empty() {
            return Ok((0, 0));
        }
        let asked = buffer.len() as u64;
        let heard = self.get(spot, format!("bytes={offset}-{}", offset + asked - 1)).await?;
        let (first_byte_ns, retries) = (heard.first_byte_ns, heard.retries);
        let wrong = |heard: &Heard, text: String| {
            TargetError::coded("EPROTO", format!("{}: {text}", heard.carried.origin)).retried(retries)
        };
        let length = match heard.response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let said = heard.header(CONTENT_RANGE);
                let (first, last) =
                    range(&said).ok_or_else(|| wrong(&heard, format!("the range {said:?} is none")))?;
                if first != offset || last - first >= asked {
                    let text = format!("asked for {asked} bytes at {offset}, given the range {said:?}");
                    return Err(wrong(&heard, text));
                }
                last - first + 1
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.read_small(heard.response, heard.carried, REFUSAL_BYTES_MAX).await?;
                return Ok((0, first_byte_ns));
            }
            StatusCode::OK => heard.length().filter(|all| offset == 0 && *all <= asked).ok_or_else(|| {
                let text =
                    format!("{}: it gives whole files alone, and a part was asked for", heard.carried.origin);
                TargetError::coded("EOPNOTSUPP", text).retried(retries)
            })?,
            _ => return Err(self.no_content(heard).await),
        };
        if length > 0 {
            let pieces = [Piece { offset, length_bytes: length as u32 }];
            let mut wanted = Wanted::new(&pieces, &mut buffer[..length as usize]);
            let parts = Parts::one(offset, offset + length - 1);
            self.fill(heard, parts, &mut wanted).await.map_err(|it| it.retried(retries))?;
        }
        Ok((length, first_byte_ns))
    }

    /// Reads the places that are the buffer's pieces, `RANGES_MAX` of them a request. Gives the bytes, and when the first came.
    ///
    /// Errors: something of a place did not come.
    pub async fn read_pieces(&self, spot: &Spot, buffer: &mut Buffer) -> Result<(u64, u64), TargetError> {
        let (pieces, mut memory) = buffer.pieces_and_memory();
        let bytes = memory.len() as u64;
        let mut requests = Vec::with_capacity(pieces.len().div_ceil(RANGES_MAX));
        for pieces in pieces.chunks(RANGES_MAX) {
            let length = pieces.iter().map(|piece| piece.length_bytes as usize).sum();
            let (own, rest) = memory.split_at_mut(length);
            memory = rest;
            requests.push(self.read_places(spot, Wanted::new(pieces, own)));
        }
        let first_bytes = try_join_all(requests).await?;
        Ok((bytes, first_bytes.into_iter().filter(|first| *first > 0).min().unwrap_or(0)))
    }

    /// One request for several places; when the first byte came.
    async fn read_places(&self, spot: &Spot, mut wanted: Wanted<'_>) -> Result<u64, TargetError> {
        let words = wanted.in_words();
        if words.is_empty() {
            return Ok(0);
        }
        let heard = self.get(spot, words).await?;
        let (first_byte_ns, retries, origin) =
            (heard.first_byte_ns, heard.retries, heard.carried.origin.clone());
        let failed =
            |code: &str, text: String| TargetError::coded(code, format!("{origin}: {text}")).retried(retries);
        let parts = match heard.response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let media_type = heard.header(CONTENT_TYPE);
                let one = || range(&heard.header(CONTENT_RANGE)).map(|(first, last)| Parts::one(first, last));
                Parts::several(&media_type)
                    .or_else(one)
                    .ok_or_else(|| failed("EPROTO", format!("neither parts nor a range: {media_type:?}")))?
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.read_small(heard.response, heard.carried, REFUSAL_BYTES_MAX).await?;
                return Err(failed("EINVAL", "all that was asked for is beyond the end".to_owned()));
            }
            // Where the places come to more than the file a server may give that.
            StatusCode::OK => match heard.length() {
                Some(all) if 0 < all && all <= WHOLE_BYTES_MAX.max(wanted.bytes()) => Parts::one(0, all - 1),
                _ => {
                    let text = "it gives whole files alone, and several parts were asked for";
                    return Err(failed("EOPNOTSUPP", text.to_owned()));
                }
            },
            _ => return Err(self.no_content(heard).await),
        };
        self.fill(heard, parts, &mut wanted).await.map_err(|it| it.retried(retries))?;
        match wanted.missing() {
            None => Ok(first_byte_ns),
            Some(Piece { offset, length_bytes }) => Err(failed(
                "EINVAL",
                format!("{length_bytes} bytes at {offset} did not come: beyond the end, or left out"),
            )),
        }
    }

    /// Asks for ranges of an open file.
    async fn get(&self, spot: &Spot, ranges: String) -> Result<Heard, TargetError> {
        let mut ask = Ask::new("GET", &spot.path);
        ask.headers.push((RANGE, ranges));
        let at = spot.at().clone();
        let heard = self.ask(ask, at).await;
        let there = heard.as_ref().ok().map(|heard| &heard.at);
        if spot.at().as_ref() != there {
            // Whoever sent us there may know another.
            *spot.at() = there.cloned();
        }
        heard
    }

    /// Why an answer is no content.
    async fn no_content(&self, heard: Heard) -> TargetError {
        let (origin, retries) = (heard.carried.origin.clone(), heard.retries);
        let said = self.said(heard, REFUSAL_BYTES_MAX).await.err();
        let text = || TargetError::coded("EPROTO", format!("{origin}: no content was given"));
        said.unwrap_or_else(text).retried(retries)
    }

    /// Reads an answer's content to its end.
    async fn fill(&self, heard: Heard, mut parts: Parts, wanted: &mut Wanted<'_>) -> Result<(), TargetError> {
        let Heard { response, carried, .. } = heard;
        let wrong = |text: String| TargetError::coded("EPROTO", format!("{}: {text}", carried.origin));
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&carried.origin, &error))?;
            let Ok(data) = frame.into_data() else { continue };
            parts.take(&data, wanted).map_err(wrong)?;
        }
        parts.finish().map_err(wrong)?;
        self.connections.keep(carried);
        Ok(())
    }
}

impl Heard {
    /// What a header of it says; empty where it says nothing.
    fn header(&self, name: hyper::header::HeaderName) -> String {
        self.response.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// Bytes of its content, or of the one that it speaks of.
    fn length(&self) -> Option<u64> {
        self.header(CONTENT_LENGTH).parse().ok()
    }
}

fn broken(origin: &Origin, error: &hyper::Error) -> TargetError {
    TargetError::coded(
        "EPROTO",
        format!("{origin}: the answer ended too early or is not understood: {}", in_words(error)),
    )
}

/// What a refusal means, and the server's own words where it has some.
fn refusal(origin: &str, status: StatusCode, why: &[u8]) -> TargetError {
    let texts = xml::texts(why).unwrap_or_default();
    let own = xml::first(&texts, "Error/Code").zip(xml::first(&texts, "Error/Message"));
    let own = own.map(|(code, text)| format!(": {code}: {text}")).unwrap_or_default();
    let named = match status.as_u16() {
        401 | 403 => "EACCES",
        404 | 410 => "ENOENT",
        405 | 501 => "EOPNOTSUPP",
        408 | 504 => "ETIMEDOUT",
        409 => "ENOTDIR",
        412 => "EEXIST",
        413 => "EFBIG",
        423 => "EBUSY",
        429 | 503 => "EAGAIN",
        507 => "ENOSPC",
        _ => "",
    };
    let code = if named.is_empty() { format!("HTTP-{}", status.as_u16()) } else { named.to_owned() };
    TargetError::coded(&code, format!("{origin} answers {status}{own}"))
}

/// How often it was tried before.
pub trait Retried {
    fn retried(self, retries: u32) -> Self;
}

impl Retried for TargetError {
    fn retried(self, retries: u32) -> TargetError {
        TargetError { retries: self.retries.max(retries), ..self }
    }
}
