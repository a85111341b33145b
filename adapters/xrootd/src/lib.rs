//! The target `root`: files of an XRootD server, or of a cluster of them, by a client of our own. Rule: `docs/specs/xrootd.md`.

mod client;
mod connection;
mod incoming;
mod session;
mod task;
#[cfg(test)]
mod tests;
mod wire;

use crate::client::{Place, Settings};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weir_core::{Kind, Param, Values};
use weir_seams::Entry;
use weir_seams::target::url::host_and_port;
use weir_seams::target::{
    Offers, PiecesMax, RETRIES, Session, SessionSettings, Target, TargetEntry, TargetError, TargetUrl,
    retries,
};
use weir_transport::tcp::{self, CONGESTION};
use weir_transport::tls::AUTHORITIES;

const PARAMS: &[Param] = &[
    Param::new(
        "pages",
        Kind::Flag,
        "Read and write with a checksum for each page of 4 KiB; a page that it does not fit is asked for again.",
    )
    .default("false"),
    RETRIES,
    CONGESTION,
    AUTHORITIES,
];

const fn entry(name: &'static str, about: &'static str, build: &'static Root) -> TargetEntry {
    Entry { name, about, params: PARAMS, needs: &[], build }
}

pub static TARGETS: &[TargetEntry] = &[
    entry("root", "files of an XRootD server or cluster: root://HOST:PORT//PATH", &Root { secure: false }),
    entry("roots", "the same, over TLS alone: roots://HOST:PORT//PATH", &Root { secure: true }),
];

/// As servers take them unless they are set up otherwise.
const TOKEN_BYTES_MAX: usize = 4_096;

pub struct Root {
    /// No word without TLS.
    secure: bool,
}

/// Host and port that a URL names.
fn place(url: &TargetUrl) -> Result<Place, String> {
    let authority = url.authority.as_deref().unwrap_or_default();
    let at = authority.rsplit_once('@').map_or(authority, |(_, at)| at);
    let (host, port) = host_and_port(at);
    if host.is_empty() {
        return Err(format!("{url}: no host follows `{}://`", url.scheme));
    }
    let port = match port {
        None => wire::DEFAULT_PORT,
        Some(port) => {
            let number = port.parse().ok().filter(|port| *port > 0);
            number.ok_or_else(|| format!("{url}: {port:?} is no port"))?
        }
    };
    Ok(Place { host: host.to_owned(), port })
}

/// What this machine calls a user or a group; its number where it has no name.
fn named(file: &str, number: u32) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| number.to_string())
}

/// The bearer token of this user, where the WLCG's "Bearer Token Discovery" (1.0) looks for it.
fn token(user: u32) -> Option<String> {
    // In a folder that all may write to, what somebody else has put there is none of ours, and not even opened: it may be a pipe.
    let is_own = |path: &Path| {
        let about = std::fs::metadata(path);
        about.is_ok_and(|it| it.is_file() && it.uid() == user && it.len() <= 2 * TOKEN_BYTES_MAX as u64)
    };
    let of_file = |path: &Path| is_own(path).then(|| std::fs::read_to_string(path).ok()).flatten();
    let variable = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty());
    let found = variable("BEARER_TOKEN")
        .and_then(|token| token.into_string().ok())
        .or_else(|| of_file(Path::new(&variable("BEARER_TOKEN_FILE")?)))
        .or_else(|| of_file(&Path::new(&variable("XDG_RUNTIME_DIR")?).join(format!("bt_u{user}"))))
        .or_else(|| of_file(Path::new(&format!("/tmp/bt_u{user}"))))?;
    let token = found.trim();
    (!token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.is_ascii()).then(|| token.to_owned())
}

impl Target for Root {
    fn offers(&self) -> Offers {
        let reads_pieces = Some(PiecesMax { count: wire::PIECES_MAX, bytes: wire::PIECE_BYTES_MAX });
        Offers { keeps_content: true, lists: true, is_remote: true, writes_in_order: false, reads_pieces }
    }

    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        place(url)?;
        if !url.path.starts_with("//") {
            return Err(format!(
                "{url}: a path of an XRootD server begins with two slashes: root://HOST//PATH"
            ));
        }
        Ok(())
    }

    fn session(
        &self,
        url: &TargetUrl,
        options: &Values,
        settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        let user = weir_sys::process::User::real();
        let own = Settings {
            first: place(url).map_err(TargetError::new)?,
            // A server that is silent for a third of the time leaves two for another one.
            silence_ns: settings.timeout.as_nanos() as u64 / 3,
            // Told by whoever knows why, before the load gives up by itself.
            limit_ns: settings.timeout.as_nanos() as u64 / 10 * 9,
            retries_max: retries(options).unwrap_or(u32::MAX),
            pages: options.flag("pages").unwrap_or(false),
            base: url.path[1..].to_owned(),
            process: std::process::id(),
            user: named("/etc/passwd", user.uid),
            group: named("/etc/group", user.gid),
            secure: self.secure,
            token: token(user.uid),
        };
        let tcp = tcp::to_server(options).map_err(|problem| TargetError::new(format!("{url}: {problem}")))?;
        let session = session::XrootdSession::new(own, tcp, options.text("ca").as_deref().map(Path::new))
            .map_err(|error| TargetError::new(format!("{url}: {error}")))?;
        Ok(Box::new(session))
    }
}
