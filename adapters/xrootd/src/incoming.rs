//! Content that comes in, on its way into the buffer of the operation that asked for it.

use crate::wire::{self, CHECKSUM_BYTES, PIECE_BYTES};
use weir_seams::target::Buffer;

/// What stands between the bytes of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// Nothing.
    #[default]
    Plain,
    /// Before each piece which one it is.
    Pieces,
    /// Before each page its checksum; the bytes lie in the file from this offset on.
    Pages { offset: u64 },
}

/// Where an answer's next bytes go; of what has no content, nowhere.
#[derive(Default)]
pub struct Incoming {
    form: Form,
    /// Bytes of the buffer that are there; the next goes behind them.
    filled: usize,
    /// It ends there; of a page that is asked for again before the buffer does.
    end: usize,
    /// What stands before a piece or a page, and how much of that has come.
    head: [u8; PIECE_BYTES],
    head_filled: usize,
    /// What is left of the piece or page whose head has come.
    left: usize,
    /// Pieces whose head has come.
    piece: usize,
    /// Where in the buffer the page begins that is coming.
    page_from: usize,
    /// Pages that their checksum does not fit: first byte in the buffer, and how many.
    wrong: Vec<(usize, usize)>,
    /// Most that was filled before a page was asked for again.
    reached: usize,
}

impl Incoming {
    fn new(form: Form, end: usize) -> Incoming {
        Incoming { form, end, ..Incoming::default() }
    }

    pub fn plain(buffer: &Buffer) -> Incoming {
        Incoming::new(Form::Plain, buffer.len())
    }

    pub fn pieces(buffer: &Buffer) -> Incoming {
        Incoming::new(Form::Pieces, buffer.len())
    }

    pub fn pages(offset: u64, buffer: &Buffer) -> Incoming {
        Incoming::new(Form::Pages { offset }, buffer.len())
    }

    /// Goes on with a page that came wrong: which bytes of the buffer it is.
    pub fn again(&mut self) -> Option<(usize, usize)> {
        let (from, length) = self.wrong.pop()?;
        self.reached = self.reached.max(self.filled);
        (self.filled, self.end) = (from, from + length);
        (self.head_filled, self.left) = (0, 0);
        Some((from, length))
    }

    /// Bytes of the buffer that have been filled.
    pub fn moved(&self) -> usize {
        self.filled.max(self.reached)
    }

    /// Most that may still come, with what stands between.
    pub fn room(&self, buffer: &Buffer) -> usize {
        let content = self.end - self.filled;
        let between = match self.form {
            Form::Plain => 0,
            Form::Pieces => (buffer.pieces().len() - self.piece) * PIECE_BYTES - self.head_filled,
            Form::Pages { offset } => {
                wire::pages(offset + self.filled as u64, content).count() * CHECKSUM_BYTES
            }
        };
        content + between
    }

    /// Nothing is missing of what was asked for; plain content and pages may end with the file.
    pub fn is_whole(&self, buffer: &Buffer) -> bool {
        self.left == 0
            && self.head_filled == 0
            && (self.form != Form::Pieces || self.piece == buffer.pieces().len())
    }

    /// Takes what came; after it `rest` more bytes of the same part of the answer come.
    ///
    /// Errors: it is not what was asked for.
    pub fn take(&mut self, mut bytes: &[u8], rest: usize, buffer: &mut Buffer) -> Result<(), &'static str> {
        let head_bytes = match self.form {
            Form::Plain => {
                self.left = bytes.len();
                0
            }
            Form::Pieces => PIECE_BYTES,
            Form::Pages { .. } => CHECKSUM_BYTES,
        };
        while !bytes.is_empty() {
            if self.left == 0 {
                let count = bytes.len().min(head_bytes - self.head_filled);
                self.head[self.head_filled..self.head_filled + count].copy_from_slice(&bytes[..count]);
                self.head_filled += count;
                bytes = &bytes[count..];
                if self.head_filled < head_bytes {
                    return Ok(());
                }
                self.left = self.announced(bytes.len() + rest, buffer)?;
                if self.form == Form::Pieces {
                    self.head_filled = 0;
                }
                continue;
            }
            let count = bytes.len().min(self.left);
            let room = buffer.get_mut(self.filled..(self.filled + count).min(self.end));
            let room = room.filter(|room| room.len() == count).ok_or("more than was asked for")?;
            room.copy_from_slice(&bytes[..count]);
            (self.filled, self.left, bytes) = (self.filled + count, self.left - count, &bytes[count..]);
            if self.left == 0 && head_bytes == CHECKSUM_BYTES {
                self.check_page(buffer);
            }
        }
        Ok(())
    }

    /// How long what a head stands before is.
    fn announced(&mut self, rest: usize, buffer: &Buffer) -> Result<usize, &'static str> {
        match self.form {
            Form::Plain => Ok(rest),
            Form::Pieces => {
                let wanted = buffer.pieces().get(self.piece).ok_or("a piece more than was asked for")?;
                self.piece += 1;
                match wire::piece_of(self.head) == *wanted {
                    true => Ok(wanted.length_bytes as usize),
                    false => Err("another piece than was asked for"),
                }
            }
            Form::Pages { offset } => {
                self.page_from = self.filled;
                let mut pages = wire::pages(offset + self.filled as u64, rest);
                pages.next().map(|(_, length)| length).ok_or("a checksum of nothing")
            }
        }
    }

    /// A page has come whole.
    fn check_page(&mut self, buffer: &Buffer) {
        self.head_filled = 0;
        let begin = self.page_from;
        let [a, b, c, d, ..] = self.head;
        if crc_fast::crc32_iscsi(&buffer[begin..self.filled]) != u32::from_be_bytes([a, b, c, d]) {
            self.wrong.push((begin, self.filled - begin));
        }
    }
}
