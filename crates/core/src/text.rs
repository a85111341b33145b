//! Text of others (a scenario, a folder, a server, an agent) as it may be shown on a terminal.

/// Longest text of others that is shown whole, in bytes.
pub const SHOWN_BYTES_MAX: usize = 4_096;

/// Lines of one error that are shown.
const LINES_MAX: usize = 100;

/// `text` on one line, nothing in it able to move the cursor, colour, reorder or forge a line, and no longer than `limit`
/// bytes of the original; how many are left out is said.
pub fn shown(text: &str, limit: usize) -> String {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let mut out: String = text[..end].chars().map(|letter| visible(letter).unwrap_or(letter)).collect();
    if end < text.len() {
        out += &format!("… ({} more bytes)", text.len() - end);
    }
    out
}

/// `shown` for text of several lines, as errors may be: lines after the first are indented, so that none of them looks like a
/// line of this program's own.
pub fn shown_lines(text: &str) -> String {
    let mut lines = text.lines();
    let mut out: Vec<String> =
        lines.by_ref().take(LINES_MAX).map(|line| shown(line, SHOWN_BYTES_MAX)).collect();
    match lines.count() {
        0 => {}
        more => out.push(format!("… ({more} more lines)")),
    }
    out.join("\n  ")
}

/// `shown` for a page that this program has laid out, line by line: what is of others in it has been put on one line before.
pub fn shown_page(page: &str) -> String {
    let lines: Vec<String> = page.split('\n').map(|line| shown(line, SHOWN_BYTES_MAX)).collect();
    lines.join("\n")
}

/// A JSON document that reads the same and steers no terminal that it is printed on. Control characters of one byte are escaped
/// already; outside of texts it has only ASCII.
pub fn shown_json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for letter in document.chars() {
        match visible(letter) {
            Some(_) if !letter.is_ascii() || letter == '\u{7f}' => {
                out += &format!("\\u{:04x}", letter as u32)
            }
            _ => out.push(letter),
        }
    }
    out
}

/// What a control or direction-changing character is shown as, if `letter` is one.
/// Direction overrides would let a name reorder the text around it; escape sequences would let it write to a terminal.
pub fn visible(letter: char) -> Option<char> {
    match letter {
        '\n' | '\t' | '\r' => Some(' '),
        '\0'..='\u{1f}' => char::from_u32(0x2400 + letter as u32),
        '\u{7f}' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}' => Some('\u{fffd}'),
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some('\u{fffd}')
        }
        '\u{2028}' | '\u{2029}' => Some(' '),
        '\u{fffe}' | '\u{ffff}' => Some('\u{fffd}'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_one_bounded_line_that_commands_no_terminal() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\rd\nverdict: pass\u{202e}e\u{7f}";
        let text = shown(hostile, SHOWN_BYTES_MAX);
        assert_eq!(text, "a\u{241b}[2Jb\u{fffd}31mc d verdict: pass\u{fffd}e\u{2421}");
        assert!(!text.contains(char::is_control));
        assert_eq!(shown(&"x".repeat(100_000), 10), "xxxxxxxxxx… (99990 more bytes)");
        assert_eq!(shown("aé", 2), "a… (2 more bytes)", "a letter is never cut in two");
        assert_eq!(shown("aé", 3), "aé");
    }

    #[test]
    fn a_page_keeps_its_lines_and_a_document_its_meaning() {
        assert_eq!(shown_page("a\u{9b}2J\n\n  b\r"), "a\u{fffd}2J\n\n  b ");
        let long = shown_page(&format!("{}\nb", "x".repeat(100_000)));
        assert!(long.len() < SHOWN_BYTES_MAX + 40 && long.ends_with("(95904 more bytes)\nb"));
        let text = "\u{9b}2J\u{1b}\r\u{202e}\u{7f}\u{ffff}é";
        let document = serde_json::json!({ "about": text }).to_string();
        let harmless = shown_json(&document);
        assert!(!harmless.contains(|letter| visible(letter).is_some()), "{harmless}");
        let read: serde_json::Value = serde_json::from_str(&harmless).unwrap();
        assert_eq!(read["about"], text);
    }

    #[test]
    fn no_later_line_of_an_error_begins_where_lines_of_this_program_begin() {
        assert_eq!(shown_lines("refused\nverdict: pass\u{9b}"), "refused\n  verdict: pass\u{fffd}");
        assert_eq!(shown_lines(&"x\n".repeat(1_000_000)).lines().count(), LINES_MAX + 1);
    }
}
