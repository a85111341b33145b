//! Where a server is, and how paths are written in requests.

use std::fmt;
use weir_seams::target::url::host_and_port;

/// A server, and whether it is spoken to by TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub is_secure: bool,
    pub host: String,
    pub port: u16,
}

impl Origin {
    /// Of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`. Errors: which part is none, in words.
    pub fn of(authority: &str, is_secure: bool) -> Result<Origin, String> {
        if authority.contains('@') {
            return Err("a user in front of the host is not sent; leave it out".to_owned());
        }
        let (host, port) = host_and_port(authority);
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err("no host follows the scheme".to_owned());
        }
        let port = match port {
            None => {
                if is_secure {
                    443
                } else {
                    80
                }
            }
            Some(port) => {
                port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("{port:?} is no port"))?
            }
        };
        Ok(Origin { is_secure, host: host.to_owned(), port })
    }

    /// Of `http://HOST:PORT` or `https://…`; a path after it is none of its own. Errors: in words.
    pub fn parse(url: &str) -> Result<Origin, String> {
        Origin::with_path(url).map(|(origin, _)| origin)
    }

    /// Of a whole URL, with its path and query as they are written. Errors: in words.
    pub fn with_path(url: &str) -> Result<(Origin, String), String> {
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("it begins with neither http:// nor https://".to_owned()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let path =
            if rest[end..].starts_with('/') { rest[end..].to_owned() } else { format!("/{}", &rest[end..]) };
        Ok((Origin::of(&rest[..end], is_secure)?, path))
    }
}

/// As the header `Host` has it.
impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]", self.host)?,
            false => write!(formatter, "{}", self.host)?,
        }
        match (self.is_secure, self.port) {
            (true, 443) | (false, 80) => Ok(()),
            (_, port) => write!(formatter, ":{port}"),
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn percent(out: &mut String, byte: u8) {
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// A path as a request has it: what may stand there stays, escapes that are there too.
pub fn as_written(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'/' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+'
            | b',' | b';' | b'=' | b':' | b'@' | b'%' => out.push(char::from(byte)),
            other => percent(&mut out, other),
        }
    }
    out
}

/// A key or a value of a query as S3's signature wants it: letters, digits and `-._~` alone, and slashes where `slash`.
pub fn escaped(text: &str, slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if slash => out.push('/'),
            other => percent(&mut out, other),
        }
    }
    out
}

/// Escapes read back; those that are none stay.
pub fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
