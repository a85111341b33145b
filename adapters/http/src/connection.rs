//! Connections: made when a request needs one, kept for the next.

use crate::place::Origin;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_sys::socket;
use weir_transport::tcp;
use weir_transport::tcp_options::TcpOptions;
use weir_transport::tls;

/// Of what came and is not yet taken, and of what is to be sent. Thousands of connections have one each.
const HELD_BYTES: usize = 64 << 10;

/// What goes with a request.
pub enum Payload {
    None,
    Whole(Bytes),
    /// Piece after piece, as long as whoever sends them does.
    Pieces(Receiver<Bytes>),
}

impl Payload {
    /// The same once more; pieces are gone when they are sent.
    pub fn again(&self) -> Option<Payload> {
        match self {
            Payload::None => Some(Payload::None),
            Payload::Whole(bytes) => Some(Payload::Whole(bytes.clone())),
            Payload::Pieces(_) => None,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Payload::None => Poll::Ready(None),
            Payload::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Payload::None;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Payload::Pieces(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|it| Ok(Frame::data(it))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Payload::None)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::None => SizeHint::with_exact(0),
            Payload::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Payload::Pieces(_) => SizeHint::default(),
        }
    }
}

/// A socket, with TLS on it or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connections that wait for their next request, by server.
pub struct Connections {
    idle: Mutex<BTreeMap<Origin, Vec<SendRequest<Payload>>>>,
    tcp: TcpOptions,
    trust: Option<TlsConnector>,
}

/// A connection that carries one request.
pub struct Carried {
    sender: SendRequest<Payload>,
    pub origin: Origin,
    /// It has carried another before: its server may have closed it in the meantime.
    pub is_reused: bool,
}

impl Connections {
    /// Errors: certificates that are to be trusted cannot be read.
    pub fn new(tcp: TcpOptions, authorities: Option<PathBuf>, is_secure: bool) -> io::Result<Connections> {
        let trust =
            is_secure.then(|| tls::trust(authorities.as_deref()).map(TlsConnector::from)).transpose()?;
        Ok(Connections { idle: Mutex::new(BTreeMap::new()), tcp, trust })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<Origin, Vec<SendRequest<Payload>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is there, unless `new`, or a new one. Errors: none can be made.
    pub async fn take(&self, origin: &Origin, new: bool) -> io::Result<Carried> {
        let next = || if new { None } else { self.idle().get_mut(origin).and_then(Vec::pop) };
        while let Some(mut sender) = next() {
            if sender.ready().await.is_ok() {
                return Ok(Carried { sender, origin: origin.clone(), is_reused: true });
            }
        }
        let sender = self.connect(origin).await?;
        Ok(Carried { sender, origin: origin.clone(), is_reused: false })
    }

    /// It is there for the next request.
    pub fn keep(&self, carried: Carried) {
        if !carried.sender.is_closed() {
            self.idle().entry(carried.origin).or_default().push(carried.sender);
        }
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let (stream, is_connected) = tcp::begin(&address, &self.tcp)?;
        let stream = TcpStream::from_std(stream)?;
        if !is_connected {
            stream.writable().await?;
            socket::pending_error(stream.as_fd())?;
        }
        Ok(stream)
    }

    async fn connect(&self, origin: &Origin) -> io::Result<SendRequest<Payload>> {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
        let mut connected = None;
        for address in tokio::net::lookup_host((origin.host.as_str(), origin.port)).await? {
            match self.dial(address).await {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let stream = connected.ok_or(last)?;
        let stream: Box<dyn Stream> = match &self.trust {
            Some(trust) if origin.is_secure => {
                let name = ServerName::try_from(origin.host.clone()).map_err(io::Error::other)?;
                Box::new(trust.connect(name, stream).await?)
            }
            None if origin.is_secure => {
                return Err(io::Error::other(
                    "redirected from an open server to a secure one; name that one",
                ));
            }
            _ => Box::new(stream),
        };
        // XrdHttp knows `Range` and not `range`, whatever RFC 9110 says of case.
        let mut builder = http1::Builder::new();
        builder.title_case_headers(true).max_buf_size(HELD_BYTES);
        let made = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(io::Error::other)?;
        // It ends with its sender; what went wrong is told to whoever waits for an answer.
        tokio::spawn(async move { connection.await.ok() });
        Ok(sender)
    }
}

impl Carried {
    /// Errors: the request was not answered; it comes back where nothing of it was sent.
    pub async fn send(
        &mut self,
        request: Request<Payload>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Payload>>)> {
        self.sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }
}
