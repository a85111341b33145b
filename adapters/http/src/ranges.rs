//! Answers that have parts of a file, one or several (RFC 9110, 14.4, 14.6 and 15.3.7): which bytes belong where.

use weir_seams::target::Piece;

/// Longest head of a part, and what may stand before the first.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// First and last byte of `bytes FIRST-LAST/ALL` (RFC 9110, 14.4).
pub fn range(text: &str) -> Option<(u64, u64)> {
    let (first, rest) = text.strip_prefix("bytes ")?.split_once('-')?;
    let (last, _) = rest.split_once('/')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Places of a file that were asked for, and the memory that their bytes fill one after the other.
pub struct Wanted<'a> {
    pieces: &'a [Piece],
    memory: &'a mut [u8],
    is_there: Vec<bool>,
}

impl<'a> Wanted<'a> {
    /// `memory` is as long as the pieces together.
    pub fn new(pieces: &'a [Piece], memory: &'a mut [u8]) -> Wanted<'a> {
        Wanted { pieces, memory, is_there: pieces.iter().map(|piece| piece.length_bytes == 0).collect() }
    }

    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// As the header of a request has it; empty where nothing is to be read.
    pub fn in_words(&self) -> String {
        let mut words = String::new();
        for piece in self.pieces.iter().filter(|piece| piece.length_bytes > 0) {
            let sign = if words.is_empty() { "bytes=" } else { "," };
            words += &format!("{sign}{}-{}", piece.offset, end(piece) - 1);
        }
        words
    }

    /// These are the bytes of the file from `offset` on.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let mut at = 0;
        for piece in self.pieces {
            let (from, to) = (piece.offset.max(offset), end(piece).min(offset + data.len() as u64));
            if from < to {
                let target = at + (from - piece.offset) as usize;
                let bytes = &data[(from - offset) as usize..(to - offset) as usize];
                self.memory[target..target + bytes.len()].copy_from_slice(bytes);
            }
            at += piece.length_bytes as usize;
        }
    }

    /// All bytes from `first` to `last` have come.
    fn have(&mut self, first: u64, last: u64) {
        for (piece, is_there) in self.pieces.iter().zip(&mut self.is_there) {
            *is_there |= first <= piece.offset && end(piece) <= last + 1;
        }
    }

    /// The first place of which something did not come.
    pub fn missing(&self) -> Option<Piece> {
        let (piece, _) = self.pieces.iter().zip(&self.is_there).find(|(_, is_there)| !**is_there)?;
        Some(*piece)
    }
}

fn end(piece: &Piece) -> u64 {
    piece.offset.saturating_add(u64::from(piece.length_bytes))
}

/// An answer's content, as it comes.
pub struct Parts {
    /// What stands before each part; none where the whole is one.
    delimiter: Option<Vec<u8>>,
    at: At,
}

enum At {
    /// Before a part, and what has come of its head.
    Head(Vec<u8>),
    Part {
        first: u64,
        next: u64,
        last: u64,
    },
    End,
}

impl Parts {
    /// Of an answer that is one part.
    pub fn one(first: u64, last: u64) -> Parts {
        Parts { delimiter: None, at: At::Part { first, next: first, last } }
    }

    /// Of an answer of that media type; `None`: it has no several parts.
    pub fn several(media_type: &str) -> Option<Parts> {
        let mut words = media_type.split(';').map(str::trim);
        words.next().filter(|name| name.eq_ignore_ascii_case("multipart/byteranges"))?;
        let boundary = words.find_map(|word| {
            let (name, value) = word.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        })?;
        let is_fit = !boundary.is_empty() && boundary.len() <= 70;
        is_fit.then(|| Parts {
            delimiter: Some(format!("--{boundary}").into_bytes()),
            at: At::Head(Vec::new()),
        })
    }

    /// Takes what came. Errors: what is wrong with it.
    pub fn take(&mut self, mut data: &[u8], wanted: &mut Wanted<'_>) -> Result<(), String> {
        while !data.is_empty() {
            match &mut self.at {
                At::Part { first, next, last } => {
                    let count = data.len().min(usize::try_from(*last - *next + 1).unwrap_or(usize::MAX));
                    wanted.put(*next, &data[..count]);
                    data = &data[count..];
                    *next += count as u64;
                    if *next > *last {
                        wanted.have(*first, *last);
                        self.at = if self.delimiter.is_some() { At::Head(Vec::new()) } else { At::End };
                    }
                }
                At::Head(head) => {
                    let delimiter = self.delimiter.as_deref().unwrap_or_default();
                    head.push(data[0]);
                    data = &data[1..];
                    if head.len() > HEAD_BYTES_MAX {
                        return Err(format!("no part begins within {HEAD_BYTES_MAX} bytes"));
                    }
                    let is_last = head.ends_with(b"--")
                        && head.len() > delimiter.len()
                        && head[..head.len() - 2].ends_with(delimiter);
                    if is_last {
                        self.at = At::End;
                    } else if head.ends_with(b"\r\n\r\n")
                        && let Some(begin) = head.windows(delimiter.len()).position(|it| it == delimiter)
                    {
                        let (first, last) = place(&head[begin + delimiter.len()..])?;
                        self.at = At::Part { first, next: first, last };
                    }
                }
                // After the last delimiter anything may stand.
                At::End if self.delimiter.is_some() => return Ok(()),
                At::End => return Err("more than it said".to_owned()),
            }
        }
        Ok(())
    }

    /// The content has ended. Errors: before its end.
    pub fn finish(&self) -> Result<(), String> {
        match &self.at {
            At::End => Ok(()),
            At::Part { next, last, .. } => Err(format!("{} bytes fewer than it said", last - next + 1)),
            At::Head(_) => Err("the last delimiter is missing".to_owned()),
        }
    }
}

/// First and last byte of a part, from its head.
fn place(head: &[u8]) -> Result<(u64, u64), String> {
    let head = String::from_utf8_lossy(head);
    let said = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-range").then(|| value.trim())
    });
    let said = said.ok_or("a part without the range that it is")?;
    range(said).filter(|(_, last)| *last < u64::MAX).ok_or_else(|| format!("the range {said:?} is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_range_is_two_numbers_that_do_not_go_backwards() {
        assert_eq!(range("bytes 0-99/1000"), Some((0, 99)));
        assert_eq!(range("bytes 5-5/*"), Some((5, 5)));
        for text in ["", "bytes 9-3/10", "bytes */10", "bytes a-b/c", "lines 0-9/10", "bytes 1-2"] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    const PIECES: [Piece; 4] = [
        Piece { offset: 90, length_bytes: 10 },
        Piece { offset: 0, length_bytes: 3 },
        Piece { offset: 50, length_bytes: 0 },
        Piece { offset: 95, length_bytes: 5 },
    ];

    /// Byte of the file at an offset.
    fn content(range: std::ops::RangeInclusive<u8>) -> Vec<u8> {
        range.collect()
    }

    fn part(first: u8, last: u8) -> Vec<u8> {
        let head =
            format!("\r\n--B7\r\nContent-Type: text/plain\r\ncontent-RANGE: bytes {first}-{last}/*\r\n\r\n");
        [head.into_bytes(), content(first..=last)].concat()
    }

    /// What is made of an answer that comes in steps of so many bytes.
    fn read(answer: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let mut memory = vec![0; 18];
        let mut wanted = Wanted::new(&PIECES, &mut memory);
        let mut parts = Parts::several("multipart/byteranges; boundary=\"B7\"").unwrap();
        for data in answer.chunks(step) {
            parts.take(data, &mut wanted)?;
        }
        parts.finish()?;
        match wanted.missing() {
            Some(piece) => Err(format!("missing {}", piece.offset)),
            None => Ok(memory),
        }
    }

    /// Rule many-1.
    #[test]
    fn parts_come_in_any_order_together_or_in_any_steps() {
        let expected = [content(90..=99), content(0..=2), content(95..=99)].concat();
        let orders = [
            vec![part(90, 99), part(0, 2), part(95, 99)],
            vec![part(0, 2), part(95, 99), part(90, 99)],
            vec![part(0, 99)],
            vec![part(88, 110), part(0, 20)],
        ];
        for order in orders {
            let answer = [b"before".to_vec(), order.concat(), b"\r\n--B7--\r\nafter".to_vec()].concat();
            for step in [1, 2, 3, 7, 64, answer.len()] {
                assert_eq!(read(&answer, step).as_deref(), Ok(&expected[..]), "{step} at a time");
            }
        }
        let wanted = Wanted::new(&PIECES, &mut []).in_words();
        assert_eq!(wanted, "bytes=90-99,0-2,95-99");
    }

    #[test]
    fn what_is_left_out_cut_off_or_no_part_is_told() {
        let end = b"\r\n--B7--\r\n".to_vec();
        let cases = [
            ([part(90, 99), end.clone()].concat(), "missing 0"),
            ([part(90, 98), part(0, 2), end.clone()].concat(), "missing 90"),
            ([part(90, 99), part(0, 2)].concat(), "the last delimiter is missing"),
            (part(90, 99)[..72].to_vec(), "fewer than it said"),
            (b"--B7\r\nContent-Type: text/plain\r\n\r\nabc".to_vec(), "without the range"),
            (b"--B7\r\nContent-Range: bytes 9-3/*\r\n\r\n".to_vec(), "is none"),
            (format!("--B7\r\nContent-Range: bytes 0-{}/*\r\n\r\nabc", u64::MAX).into_bytes(), "is none"),
            (vec![b'x'; HEAD_BYTES_MAX + 1], "no part begins"),
        ];
        for (answer, expected) in cases {
            for step in [1, answer.len()] {
                let problem = read(&answer, step).unwrap_err();
                assert!(problem.contains(expected), "{problem} is not {expected}");
            }
        }
        for media_type in ["text/plain", "multipart/byteranges", "multipart/byteranges; boundary="] {
            assert!(Parts::several(media_type).is_none(), "{media_type}");
        }
    }

    #[test]
    fn damaged_answers_end_in_an_error_or_in_what_was_asked_for() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(14);
        let whole = [part(90, 99), part(0, 2), part(95, 99), b"\r\n--B7--\r\n".to_vec()].concat();
        let mut errors = 0;
        for _ in 0..10_000 {
            let mut answer = whole.clone();
            for _ in 0..=random.next_u32() % 4 {
                let at = random.next_u32() as usize % answer.len();
                match random.next_u32() % 3 {
                    0 => answer[at] = random.next_u32() as u8,
                    1 => drop(answer.remove(at)),
                    _ => answer.insert(at, random.next_u32() as u8),
                }
            }
            errors += u32::from(read(&answer, 1 + random.next_u32() as usize % 50).is_err());
        }
        assert!(errors > 1_000, "{errors} of 10,000");
    }
}
