//! Targets by HTTP: files of a web server, of a WebDAV server, and objects of S3. Rule: `docs/specs/http.md`.

mod connection;
mod exchange;
mod place;
mod ranges;
mod session;
mod sign;
#[cfg(test)]
mod tests;
mod upload;
mod xml;

use crate::connection::Connections;
use crate::exchange::{Asker, Flavour};
use crate::place::Origin;
use crate::sign::Key;
use std::path::PathBuf;
use weir_core::{Kind, Param, Values};
use weir_seams::Entry;
use weir_seams::target::{
    Offers, PiecesMax, RETRIES, Session, SessionSettings, Target, TargetEntry, TargetError, TargetUrl,
    retries,
};
use weir_transport::tcp::{self, CONGESTION};
use weir_transport::tls::AUTHORITIES;

/// Places that one operation reads: as many as XRootD's, so that one load goes to both.
const PIECES_MAX: u32 = 1_024;

const CONNECTIONS: Param = Param::new(
    "connections",
    Kind::Count,
    "Connections that each thread of a load has at most; each carries one request at a time. Absent: as many as requests are under way.",
)
.range(1.0, 100_000.0);
const ALSO: Param = Param::new(
    "also",
    Kind::Text,
    "Other servers of the same files, HOST:PORT with commas between them. Files are opened at each in turn.",
);
const PLAIN: &[Param] = &[CONNECTIONS, ALSO, RETRIES, CONGESTION];
const SECURE: &[Param] = &[CONNECTIONS, ALSO, RETRIES, CONGESTION, AUTHORITIES];
const OBJECTS: &[Param] = &[
    CONNECTIONS,
    RETRIES,
    CONGESTION,
    AUTHORITIES,
    Param::new(
        "endpoint",
        Kind::Text,
        "URL of the server; unless given what AWS_ENDPOINT_URL says where the load runs.",
    ),
    Param::new("region", Kind::Text, "Region that requests are signed for.").default("us-east-1"),
    Param::new(
        "access_key",
        Kind::Text,
        "Name of the key; unless given what AWS_ACCESS_KEY_ID says where the load runs.",
    ),
    Param::new(
        "secret_key",
        Kind::Text,
        "The key, of servers made for a test; others' belongs into AWS_SECRET_ACCESS_KEY where the load runs, since a target's URL stands in the results.",
    ),
    Param::new("part", Kind::Size, "Bytes of a part; what is larger is uploaded in several.")
        .default("8MiB")
        .range(5.0 * 1_048_576.0, 5e9),
];

const fn entry(
    name: &'static str,
    about: &'static str,
    params: &'static [Param],
    build: &'static dyn Target,
) -> TargetEntry {
    Entry { name, about, params, needs: &[], build }
}

pub static TARGETS: &[TargetEntry] = &[
    entry("http", "files of a web server: http://HOST:PORT/PATH", PLAIN, &Web { is_dav: false }),
    entry("https", "files of a web server over TLS: https://HOST:PORT/PATH", SECURE, &Web { is_dav: false }),
    entry(
        "dav",
        "files of a WebDAV server, whose folders can be listed: dav://HOST:PORT/PATH",
        PLAIN,
        &Web { is_dav: true },
    ),
    entry("davs", "files of a WebDAV server over TLS: davs://HOST:PORT/PATH", SECURE, &Web { is_dav: true }),
    entry("s3", "objects of an S3 server: s3://BUCKET/KEY?endpoint=http://HOST:PORT", OBJECTS, &Objects),
];

struct Web {
    is_dav: bool,
}

struct Objects;

/// A session with what all these targets' options say.
fn session(
    (origins, base, flavour): (Vec<Origin>, String, Flavour),
    url: &TargetUrl,
    options: &Values,
    settings: SessionSettings,
) -> Result<Box<dyn Session>, TargetError> {
    let connections =
        options.count("connections").and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX);
    let authorities = options.text("ca").map(PathBuf::from);
    let tcp = tcp::to_server(options).map_err(|problem| TargetError::new(format!("{url}: {problem}")))?;
    let secure = origins.iter().any(|origin| origin.is_secure);
    let made = Connections::new(tcp, authorities, secure);
    let made = made.map_err(|error| TargetError::new(format!("certificates: {error}")))?;
    let asker = Asker::new(origins, base, flavour, (made, connections), (settings.timeout, retries(options)));
    let session = session::HttpSession::new(asker);
    Ok(Box::new(session.map_err(|error| TargetError::new(format!("{url}: {error}")))?))
}

fn origin(url: &TargetUrl) -> Result<Origin, String> {
    Origin::of(url.authority.as_deref().unwrap_or_default(), url.scheme.ends_with('s'))
}

impl Target for Web {
    fn offers(&self) -> Offers {
        Offers {
            keeps_content: true,
            lists: self.is_dav,
            is_remote: true,
            writes_in_order: true,
            reads_pieces: Some(PiecesMax { count: PIECES_MAX, bytes: u32::MAX }),
        }
    }

    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        origin(url).map(drop).map_err(|problem| format!("{url}: {problem}"))
    }

    fn session(
        &self,
        url: &TargetUrl,
        options: &Values,
        settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        let mut origins = vec![origin(url).map_err(TargetError::new)?];
        for also in options.text("also").iter().flat_map(|also| also.split(',')) {
            let other = Origin::of(also.trim(), origins[0].is_secure);
            origins.push(other.map_err(|problem| TargetError::new(format!("`also` {also:?}: {problem}")))?);
        }
        let flavour = if self.is_dav { Flavour::Dav } else { Flavour::Web };
        let base = if url.path.is_empty() { "/".to_owned() } else { url.path.clone() };
        session((origins, base, flavour), url, options, settings)
    }
}

impl Target for Objects {
    fn offers(&self) -> Offers {
        Offers {
            keeps_content: true,
            lists: true,
            is_remote: true,
            writes_in_order: true,
            ..Offers::default()
        }
    }

    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        match url.authority.as_deref() {
            None | Some("") => Err(format!("{url}: no bucket follows `s3://`")),
            Some(_) => Ok(()),
        }
    }

    fn session(
        &self,
        url: &TargetUrl,
        options: &Values,
        settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        let given = |option: &str, variable: &str| {
            let said = options.text(option).or_else(|| std::env::var(variable).ok());
            said.filter(|said| !said.is_empty()).ok_or_else(|| {
                TargetError::new(format!(
                    "{}: neither the option `{option}` nor {variable} is set on this host",
                    url.scheme
                ))
            })
        };
        let endpoint = given("endpoint", "AWS_ENDPOINT_URL")?;
        let origin = Origin::parse(&endpoint)
            .map_err(|problem| TargetError::new(format!("`endpoint` {endpoint:?}: {problem}")))?;
        let key = Key {
            name: given("access_key", "AWS_ACCESS_KEY_ID")?,
            secret: given("secret_key", "AWS_SECRET_ACCESS_KEY")?,
            region: options.text("region").unwrap_or_else(|| "us-east-1".to_owned()),
        };
        let part_bytes = options.size("part").map_or(8 << 20, |size| size.0 as usize);
        let bucket = url.authority.clone().unwrap_or_default();
        let flavour = Flavour::Objects { key, bucket, part_bytes };
        let base = url.path.trim_start_matches('/').to_owned();
        session((vec![origin], base, flavour), url, options, settings)
    }
}
