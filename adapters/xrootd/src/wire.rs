//! What goes over the wire, as bytes. Source: "XRootD Protocol Version 5.1.1", the XRootD project; constants as the servers of
//! release 5 use them.

use weir_seams::target::Piece;

/// Port of a server unless its URL says another.
pub const DEFAULT_PORT: u16 = 1094;
/// Version of the protocol that is spoken.
const VERSION: u32 = 0x0520;
/// Header of every answer: stream, status, length of what follows.
pub const HEADER_BYTES: usize = 8;
/// A request without what follows it.
pub const REQUEST_BYTES: usize = 24;
pub type Handle = [u8; 4];

pub const OK: u16 = 0;
/// More follows.
pub const OK_SO_FAR: u16 = 4000;
pub const ATTENTION: u16 = 4001;
pub const AUTHENTICATE_MORE: u16 = 4002;
pub const ERROR: u16 = 4003;
pub const REDIRECT: u16 = 4004;
pub const WAIT: u16 = 4005;
/// The answer comes later, by itself.
pub const WAIT_FOR_ANSWER: u16 = 4006;
/// A body with a checksum and a description of what follows it.
pub const STATUS: u16 = 4007;
/// Of what a server says unasked: an answer that was to come later.
pub const LATE_ANSWER: u32 = 5008;

const AUTHENTICATE: u16 = 3000;
const CLOSE: u16 = 3003;
const LIST: u16 = 3004;
const PROTOCOL: u16 = 3006;
const LOGIN: u16 = 3007;
const OPEN: u16 = 3010;
const READ: u16 = 3013;
const REMOVE: u16 = 3014;
const SYNC: u16 = 3016;
const STAT: u16 = 3017;
const WRITE: u16 = 3019;
const READ_VECTOR: u16 = 3025;
const LOCATE: u16 = 3027;
const WRITE_PAGES: u16 = 3026;
const READ_PAGES: u16 = 3030;
/// First of the numbers of requests, of which bodies with a status have the difference.
const FIRST_REQUEST: u16 = 3000;

/// Before each piece of a vector read: handle, length, offset.
pub const PIECE_BYTES: usize = 16;
/// Pieces of one request, and bytes of each, that a server of release 5 takes unless it is set up otherwise.
pub const PIECES_MAX: u32 = 1_024;
pub const PIECE_BYTES_MAX: u32 = 2_097_136;
/// What has a checksum of its own: pieces of a file between multiples of it.
pub const PAGE_BYTES: u64 = 4_096;
pub const CHECKSUM_BYTES: usize = 4;
/// A body with a status, without what follows it.
pub const STATUS_BYTES: usize = 24;
/// Of a page that was wrong before.
const AGAIN: u8 = 1;

const OPEN_TRUNCATE: u16 = 0x0002;
const OPEN_READ: u16 = 0x0010;
const OPEN_UPDATE: u16 = 0x0020;
/// What the manager remembers of the file's places is to be asked for again.
const OPEN_REFRESH: u16 = 0x0080;
const OPEN_MAKE_PATH: u16 = 0x0100;
const OPEN_STAT: u16 = 0x0400;
/// `rw-r--r--`.
const FILE_MODE: u16 = 0x0100 | 0x0080 | 0x0020 | 0x0004;

/// Of the flags of a server: TLS is spoken from here on, or from the login on.
const TLS_NOW: u32 = 0x4000_0000 | 0x0400_0000;
/// From after the login on.
const TLS_SESSION: u32 = 0x0800_0000;
/// Of the flags of a client: it can speak TLS, or wants to.
const TLS_ABLE: u8 = 2;
const TLS_WANTED: u8 = 4;
const IS_FOLDER: u32 = 2;

/// A request's first 24 bytes: its stream and number, 16 bytes of its own, the length of what follows.
fn request(stream: u16, number: u16, own: [u8; 16], follows_bytes: usize) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..2].copy_from_slice(&stream.to_be_bytes());
    bytes[2..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..20].copy_from_slice(&own);
    bytes[20..].copy_from_slice(&(follows_bytes as u32).to_be_bytes());
    bytes
}

fn with_text(out: &mut Vec<u8>, stream: u16, number: u16, own: [u8; 16], text: &[u8]) {
    out.extend_from_slice(&request(stream, number, own, text.len()));
    out.extend_from_slice(text);
}

/// When TLS begins on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    Never,
    Now,
    AfterLogin,
}

/// The first thing said on a connection: who we are, and the question for the server's version. `secure`: no word without TLS.
pub fn hello(out: &mut Vec<u8>, secure: bool) {
    for word in [0_u32, 0, 0, 4, 2012] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    let mut own = [0; 16];
    own[..4].copy_from_slice(&VERSION.to_be_bytes());
    // Security requirements are not asked for; a login follows.
    own[4] = if secure { TLS_ABLE | TLS_WANTED } else { TLS_ABLE };
    own[5] = 3;
    out.extend_from_slice(&request(0, PROTOCOL, own, 0));
}

pub fn login(out: &mut Vec<u8>, process: u32, user: &str) {
    let mut own = [0; 16];
    own[..4].copy_from_slice(&process.to_be_bytes());
    user.bytes().take(8).zip(&mut own[4..12]).for_each(|(byte, slot)| *slot = byte);
    // Addresses of both families are understood; version 5, answers may come late.
    (own[13], own[14]) = (0x08, 0x85);
    out.extend_from_slice(&request(0, LOGIN, own, 0));
}

/// `unix`: the server believes what it is told.
pub fn authenticate_unix(out: &mut Vec<u8>, user: &str, group: &str) {
    let mut own = [0; 16];
    own[12..].copy_from_slice(b"unix");
    with_text(out, 0, AUTHENTICATE, own, format!("unix\0{user} {group}").as_bytes());
}

/// `ztn`: a bearer token, which a server checks. Source: `XrdSecProtocolztn` of release 5.
pub fn authenticate_token(out: &mut Vec<u8>, token: &str) {
    let mut own = [0; 16];
    own[12..].copy_from_slice(b"ztn\0");
    // Version 0, a token, two bytes for later, its length with the zero that ends it.
    let mut text = b"ztn\0\0T\0\0".to_vec();
    text.extend_from_slice(&(token.len() as u16 + 1).to_be_bytes());
    text.extend_from_slice(token.as_bytes());
    text.push(0);
    with_text(out, 0, AUTHENTICATE, own, &text);
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Read,
    Update,
    Create,
}

/// `refresh`: a manager looks anew for who has the file.
pub fn open(out: &mut Vec<u8>, stream: u16, opening: Opening, refresh: bool, path: &str) {
    let (mode, options) = match opening {
        Opening::Read => (0, OPEN_READ | OPEN_STAT),
        Opening::Update => (0, OPEN_UPDATE | OPEN_STAT),
        Opening::Create => (FILE_MODE, OPEN_UPDATE | OPEN_TRUNCATE | OPEN_MAKE_PATH | OPEN_STAT),
    };
    let options = if refresh { options | OPEN_REFRESH } else { options };
    let mut own = [0; 16];
    own[..2].copy_from_slice(&mode.to_be_bytes());
    own[2..4].copy_from_slice(&options.to_be_bytes());
    with_text(out, stream, OPEN, own, path.as_bytes());
}

fn of_handle(handle: Handle, offset: u64, last: u32) -> [u8; 16] {
    let mut own = [0; 16];
    own[..4].copy_from_slice(&handle);
    own[4..12].copy_from_slice(&offset.to_be_bytes());
    own[12..].copy_from_slice(&last.to_be_bytes());
    own
}

pub fn read(out: &mut Vec<u8>, stream: u16, handle: Handle, offset: u64, bytes: u32) {
    out.extend_from_slice(&request(stream, READ, of_handle(handle, offset, bytes), 0));
}

/// Reads several places of a file in one request.
pub fn read_vector(out: &mut Vec<u8>, stream: u16, handle: Handle, pieces: &[Piece]) {
    out.extend_from_slice(&request(stream, READ_VECTOR, [0; 16], pieces.len() * PIECE_BYTES));
    for piece in pieces {
        out.extend_from_slice(&piece_head(handle, *piece));
    }
}

fn piece_head(handle: Handle, piece: Piece) -> [u8; PIECE_BYTES] {
    let mut head = [0; PIECE_BYTES];
    head[..4].copy_from_slice(&handle);
    head[4..8].copy_from_slice(&piece.length_bytes.to_be_bytes());
    head[8..].copy_from_slice(&piece.offset.to_be_bytes());
    head
}

/// The piece that the head before its bytes announces.
pub fn piece_of(head: [u8; PIECE_BYTES]) -> Piece {
    let [_, _, _, _, a, b, c, d, offset @ ..] = head;
    Piece { offset: u64::from_be_bytes(offset), length_bytes: u32::from_be_bytes([a, b, c, d]) }
}

/// Reads with a checksum for each page; `again`: a page that came wrong.
pub fn read_pages(out: &mut Vec<u8>, stream: u16, handle: Handle, piece: Piece, again: bool) {
    let follows: &[u8] = if again { &[0, AGAIN] } else { &[] };
    let own = of_handle(handle, piece.offset, piece.length_bytes);
    with_text(out, stream, READ_PAGES, own, follows);
}

/// Writes with a checksum before each page; `again`: a page that arrived wrong.
pub fn write_pages(out: &mut Vec<u8>, stream: u16, handle: Handle, offset: u64, bytes: &[u8], again: bool) {
    let own = of_handle(handle, offset, if again { u32::from(AGAIN) << 16 } else { 0 });
    let count = pages(offset, bytes.len()).count();
    out.extend_from_slice(&request(stream, WRITE_PAGES, own, bytes.len() + count * CHECKSUM_BYTES));
    for (from, length) in pages(offset, bytes.len()) {
        let page = &bytes[from..from + length];
        out.extend_from_slice(&crc_fast::crc32_iscsi(page).to_be_bytes());
        out.extend_from_slice(page);
    }
}

/// Bytes from `offset` on, cut at the file's pages: where each begins among them, and how long it is.
pub fn pages(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let left = length.checked_sub(from).filter(|left| *left > 0)?;
        let to_end = (PAGE_BYTES - (offset + from as u64) % PAGE_BYTES) as usize;
        let page = (from, to_end.min(left));
        from += page.1;
        Some(page)
    })
}

/// What a body with a status says of what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub is_last: bool,
    /// Which follow this body, beyond the length in the answer's head.
    pub follows_bytes: u32,
}

/// Of an answer on `stream`. Errors: its checksum, its stream or its length is another.
pub fn status(stream: u16, body: &[u8]) -> Result<Status, &'static str> {
    let Ok(own) = <[u8; STATUS_BYTES]>::try_from(body) else { return Err("a status of another length") };
    if number(&own, 0) != Some(crc_fast::crc32_iscsi(&own[4..])) {
        return Err("a status that its checksum does not fit");
    }
    let of_pages = |number: u16| u16::from(own[6]) + FIRST_REQUEST == number;
    if own[4..6] != stream.to_be_bytes() || !(of_pages(READ_PAGES) || of_pages(WRITE_PAGES)) {
        return Err("a status of another request");
    }
    Ok(Status { is_last: own[7] == 0, follows_bytes: number(&own, 12).unwrap_or(0) })
}

/// Offsets of the pages that did not arrive as they were sent, from what follows the status of a write.
pub fn wrong_pages(follows: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (offsets, _) = follows.get(8..).unwrap_or_default().as_chunks();
    offsets.iter().map(|offset| u64::from_be_bytes(*offset))
}

/// The head of a write, which so many bytes follow.
pub fn write(out: &mut Vec<u8>, stream: u16, handle: Handle, offset: u64, bytes: usize) {
    out.extend_from_slice(&request(stream, WRITE, of_handle(handle, offset, 0), bytes));
}

pub fn sync(out: &mut Vec<u8>, stream: u16, handle: Handle) {
    out.extend_from_slice(&request(stream, SYNC, of_handle(handle, 0, 0), 0));
}

pub fn close(out: &mut Vec<u8>, stream: u16, handle: Handle) {
    out.extend_from_slice(&request(stream, CLOSE, of_handle(handle, 0, 0), 0));
}

pub fn stat(out: &mut Vec<u8>, stream: u16, path: &str) {
    with_text(out, stream, STAT, [0; 16], path.as_bytes());
}

pub fn list(out: &mut Vec<u8>, stream: u16, path: &str) {
    with_text(out, stream, LIST, [0; 16], path.as_bytes());
}

/// Asks for all servers that may have something below a path.
pub fn locate(out: &mut Vec<u8>, stream: u16, path: &str) {
    with_text(out, stream, LOCATE, [0; 16], format!("*{path}").as_bytes());
}

/// Hosts and ports of the servers in the answer to that: words like `Sr[::ffff:10.0.0.2]:1094`, of which `S` is a server that is up.
pub fn located(body: &[u8]) -> Vec<(String, u16)> {
    let text = String::from_utf8_lossy(body);
    let one = |word: &str| {
        let (host, port) = word.strip_prefix('S')?.get(1..)?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = host.strip_prefix("::ffff:").unwrap_or(host);
        Some((host.to_owned(), port.parse().ok()?)).filter(|_| may_be_host(host))
    };
    text.trim_end_matches('\0').split_whitespace().filter_map(one).collect()
}

pub fn remove(out: &mut Vec<u8>, stream: u16, path: &str) {
    with_text(out, stream, REMOVE, [0; 16], path.as_bytes());
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub stream: u16,
    pub status: u16,
    pub length_bytes: u32,
}

impl Header {
    pub fn of(bytes: [u8; HEADER_BYTES]) -> Header {
        let [a, b, c, d, e, f, g, h] = bytes;
        Header {
            stream: u16::from_be_bytes([a, b]),
            status: u16::from_be_bytes([c, d]),
            length_bytes: u32::from_be_bytes([e, f, g, h]),
        }
    }
}

/// The number at `at`, where there are so many bytes.
pub fn number(body: &[u8], at: usize) -> Option<u32> {
    let bytes = body.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// From when on a server's answer to `hello` says that it speaks TLS alone.
pub fn tls(protocol_body: &[u8]) -> Tls {
    match number(protocol_body, 4).unwrap_or(0) {
        flags if flags & TLS_NOW != 0 => Tls::Now,
        flags if flags & TLS_SESSION != 0 => Tls::AfterLogin,
        _ => Tls::Never,
    }
}

/// What a file is: `ID SIZE FLAGS MODIFIED …`.
pub fn info(text: &[u8]) -> Option<(u64, bool)> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\0');
    let mut words = text.split(' ');
    let size_bytes = words.nth(1)?.parse().ok()?;
    let flags: u32 = words.next()?.parse().ok()?;
    Some((size_bytes, flags & IS_FOLDER != 0))
}

/// The handle and the size in the answer to an open; the size is absent where the server leaves it out.
pub fn opened(body: &[u8]) -> Option<(Handle, Option<u64>)> {
    let handle = body.get(..4)?.try_into().ok()?;
    Some((handle, body.get(12..).and_then(info).map(|(size_bytes, _)| size_bytes)))
}

fn may_be_host(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.chars().any(|letter| letter.is_control() || letter == '/')
}

/// Where a redirect leads: host, port, and what is to be said there behind the path's question mark.
pub fn redirection(body: &[u8]) -> Option<(String, u16, String)> {
    let port = i32::from_be_bytes(body.get(..4)?.try_into().ok()?);
    let text = std::str::from_utf8(&body[4..]).ok()?.trim_end_matches('\0');
    // A negative port announces a whole URL, which is asked for by clients that understand one.
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let (host, opaque) = text.split_once('?').unwrap_or((text, ""));
    may_be_host(host).then(|| (host.to_owned(), port, opaque.to_owned()))
}

/// What a server says of an error: its number, and its text.
pub fn error(body: &[u8]) -> (u32, String) {
    let text = body.get(4..).map(String::from_utf8_lossy).unwrap_or_default();
    let text: String =
        text.trim_end_matches('\0').chars().filter(|letter| !letter.is_control()).take(400).collect();
    (number(body, 0).unwrap_or(0), text)
}

/// The name of the errno that a server's number stands for, or the number as the protocol calls it.
pub fn error_name(number: u32) -> String {
    let known = match number {
        3004 => "EBADF",
        3005 | 3007 => "EIO",
        3008 => "ENOMEM",
        3009 => "ENOSPC",
        3010 => "EACCES",
        3011 => "ENOENT",
        3013 => "EOPNOTSUPP",
        3016 => "EISDIR",
        3018 => "EEXIST",
        3021 => "EDQUOT",
        3025 => "EROFS",
        3034 => "ETIMEDOUT",
        other => return format!("kXR_{other}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn made(make: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        make(&mut out);
        hex(&out)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    // Spec: xrootd.md#wire-1
    #[test]
    fn requests_are_those_that_a_packaged_server_answered() {
        assert_eq!(
            made(|out| open(out, 1, Opening::Read, false, "/data/f.bin")),
            "00010bc2000004100000000000000000000000000000000b2f646174612f662e62696e"
        );
        assert_eq!(
            made(|out| stat(out, 1, "/data/f.bin")),
            "00010bc9000000000000000000000000000000000000000b2f646174612f662e62696e"
        );
        assert_eq!(
            made(|out| read(out, 1, [0; 4], 0, 16)),
            "00010bc50000000000000000000000000000001000000000"
        );
        assert_eq!(
            made(|out| read(out, 1, [0; 4], 3_000_000, 16)),
            "00010bc50000000000000000002dc6c00000001000000000"
        );
        let pieces = [Piece { offset: 0, length_bytes: 4 }, Piece { offset: 100, length_bytes: 8 }];
        assert_eq!(
            made(|out| read_vector(out, 1, [0; 4], &pieces)),
            "00010bd10000000000000000000000000000000000000020\
             00000000000000040000000000000000\
             00000000000000080000000000000064"
        );
        // By the source of release 5.
        assert_eq!(
            made(|out| authenticate_token(out, "a.b")),
            "00000bb80000000000000000000000007a746e000000000e7a746e0000540000 0004612e6200".replace(' ', "")
        );
        assert_eq!(made(|out| close(out, 1, [0; 4])), "00010bbb0000000000000000000000000000000000000000");
        assert_eq!(
            made(|out| login(out, 0x1092, "weir")),
            "00000bbf0000109277656972000000000008850000000000"
        );
        assert_eq!(
            made(|out| hello(out, false)),
            "000000000000000000000000000000040000 07dc00000bbe0000052002030000000000000000000000000000"
                .replace(' ', "")
        );
    }

    // Spec: xrootd.md#wire-1
    #[test]
    fn answers_of_a_packaged_server_are_understood() {
        let of_open = bytes(
            "00000000000000000000000034353335343933313935353233363335322033303030303030203438203137393535393231323920",
        );
        assert_eq!(opened(&of_open), Some(([0; 4], Some(3_000_000))));
        assert_eq!(info(&of_open[12..]), Some((3_000_000, false)));
        let (number, text) =
            error(&bytes("00000bbc7265616420646f6573206e6f7420726566657220746f20616e206f70656e2066696c6500"));
        assert_eq!(
            (error_name(number).as_str(), text.as_str()),
            ("EBADF", "read does not refer to an open file")
        );
        assert_eq!(
            Header::of([0, 1, 0x0f, 0xa3, 0, 0, 0, 40]),
            Header { stream: 1, status: ERROR, length_bytes: 40 }
        );
        assert_eq!(
            ["0000051100300001", "0000051144300001", "0000051148300001", "0000051188300001"]
                .map(|body| tls(&bytes(body))),
            [Tls::Never, Tls::Now, Tls::Now, Tls::AfterLogin]
        );
    }

    #[test]
    fn what_is_cut_short_or_no_text_is_told_from_an_answer() {
        for body in [
            &b""[..],
            b"\0",
            b"\0\0\x04\x46",
            b"\xff\xff\xff\xffroot://h",
            b"\0\0\x04\x46\xff\xfe",
            b"\0\0\0\0host",
        ] {
            assert_eq!(redirection(body), None, "{body:?}");
        }
        assert_eq!(redirection(b"\0\0\x04\x46h?a=1\0"), Some(("h".to_owned(), 1094, "a=1".to_owned())));
        assert_eq!((opened(b"123"), info(b"1 x 3 4"), info(b"\xff")), (None, None, None));
        assert_eq!(opened(b"1234"), Some((*b"1234", None)));
        assert_eq!(error(b"\0"), (0, String::new()));
    }
}
