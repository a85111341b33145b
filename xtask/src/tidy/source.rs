//! Just enough of Rust's grammar to tell code from comments and text, so that no checker trips over a string.

/// One line of a Rust file, taken apart. Columns are kept: what belongs elsewhere is blank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Without comments; the insides of strings and characters are blank.
    pub code: String,
    /// The comment on this line with its `//`, `///` or `/*`, if any.
    pub comment: String,
    /// From `#[cfg(test)]` on a module to the end of the file, or in a file of tests.
    pub test: bool,
}

impl Line {
    pub fn is_comment_only(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.trim().is_empty()
    }

    pub fn is_attribute(&self) -> bool {
        let code = self.code.trim();
        code.starts_with("#[") || code.starts_with("#![")
    }

    /// The words that could be identifiers or keywords.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.code
            .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
            .filter(|word| !word.is_empty())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

/// Takes a file apart. `path` decides whether all of it is test code.
pub fn lines(path: &str, text: &str) -> Vec<Line> {
    let mut result = split(text);
    let all_test = path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("tests.rs")
        || path.contains("/benches/");
    let mut test = all_test;
    for index in 0..result.len() {
        let marked = result[index].code.trim() == "#[cfg(test)]";
        let module = result
            .get(index + 1)
            .is_some_and(|next| next.words().any(|word| word == "mod") && next.code.contains('{'));
        test |= marked && module;
        result[index].test = test;
    }
    result
}

fn split(text: &str) -> Vec<Line> {
    let letters: Vec<char> = text.chars().collect();
    let mut result = Vec::new();
    let mut line = Line::default();
    let mut state = State::Code;
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        let next = letters.get(at + 1).copied();
        if letter == '\n' {
            result.push(std::mem::take(&mut line));
            if state == State::LineComment {
                state = State::Code;
            }
            at += 1;
            continue;
        }
        let taken = match state {
            State::Code => code_step(&letters, at, &mut line, &mut state),
            State::LineComment => {
                line.comment.push(letter);
                1
            }
            State::BlockComment(depth) => {
                let (taken, depth) = match (letter, next) {
                    ('*', Some('/')) => (2, depth - 1),
                    ('/', Some('*')) => (2, depth + 1),
                    _ => (1, depth),
                };
                line.comment.extend(&letters[at..at + taken]);
                state = if depth == 0 { State::Code } else { State::BlockComment(depth) };
                taken
            }
            State::Text => {
                // An escaped line end must still end the line.
                let taken = if letter == '\\' && next.is_some_and(|next| next != '\n') { 2 } else { 1 };
                if letter == '"' {
                    state = State::Code;
                }
                line.code.push_str(if letter == '"' { "\"" } else { &"  "[..taken] });
                taken
            }
            State::RawText(hashes) => {
                let closes = letter == '"'
                    && letters[at + 1..].iter().take_while(|other| **other == '#').count() >= hashes;
                if closes {
                    state = State::Code;
                }
                line.code.push(if closes { '"' } else { ' ' });
                1
            }
        };
        at += taken;
    }
    if !line.code.is_empty() || !line.comment.is_empty() {
        result.push(line);
    }
    result
}

/// Consumes one token start in code; returns how many characters.
fn code_step(letters: &[char], at: usize, line: &mut Line, state: &mut State) -> usize {
    let letter = letters[at];
    let next = letters.get(at + 1).copied();
    match (letter, next) {
        ('/', Some('/')) => {
            *state = State::LineComment;
            line.comment.push_str("//");
            return 2;
        }
        ('/', Some('*')) => {
            *state = State::BlockComment(1);
            line.comment.push_str("/*");
            return 2;
        }
        ('"', _) => *state = State::Text,
        ('r', Some('"' | '#')) if !in_word(letters, at) => {
            let hashes = letters[at + 1..].iter().take_while(|other| **other == '#').count();
            if letters.get(at + 1 + hashes) == Some(&'"') {
                *state = State::RawText(hashes);
                line.code.push('"');
                return hashes + 2;
            }
        }
        ('\'', Some(inside)) => {
            // A character, not a lifetime: 'x' or '\…'.
            let end = if inside == '\\' {
                letters[at + 3..].iter().position(|other| *other == '\'').map(|offset| at + 3 + offset)
            } else {
                (letters.get(at + 2) == Some(&'\'')).then_some(at + 2)
            };
            if let Some(end) = end.filter(|end| end - at < 14) {
                line.code.extend(std::iter::repeat_n(' ', end - at + 1));
                return end - at + 1;
            }
        }
        _ => {}
    }
    line.code.push(letter);
    1
}

/// Whether the character before belongs to the same word; a `b` of a byte string does not count.
fn in_word(letters: &[char], at: usize) -> bool {
    let word = |letter: char| letter.is_alphanumeric() || letter == '_';
    match at.checked_sub(1).map(|before| letters[before]) {
        Some('b') => at >= 2 && word(letters[at - 2]),
        Some(before) => word(before),
        None => false,
    }
}

/// All paths that `use` statements and inline `a::b::c` name, with groups spread out, and the line each starts on.
pub fn paths(lines: &[Line]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let code = lines[index].code.trim();
        let start = code.strip_prefix("pub ").unwrap_or(code);
        if let Some(tree) = start.strip_prefix("use ") {
            let first = index;
            let mut statement = tree.to_owned();
            while !statement.contains(';') && index + 1 < lines.len() {
                index += 1;
                statement.push_str(lines[index].code.trim());
            }
            let tree = statement.split(';').next().unwrap_or_default();
            spread("", tree, &mut |path| found.push((first + 1, path)));
        } else {
            for word in code.split(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | ':')))
            {
                if word.contains("::") {
                    found.push((index + 1, word.trim_start_matches(':').to_owned()));
                }
            }
        }
        index += 1;
    }
    found
}

/// `a::{b, c::{d, e as f}}` to `a::b`, `a::c::d`, `a::c::e`.
fn spread(prefix: &str, tree: &str, give: &mut dyn FnMut(String)) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        if !name.is_empty() {
            give(format!("{prefix}{name}").trim_end_matches("::self").to_owned());
        }
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inside = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let mut depth = 0;
    let mut start = 0;
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&prefix, &inside[start..at], give);
                start = at + 1;
            }
            _ => {}
        }
    }
    spread(&prefix, &inside[start..], give);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        lines("x.rs", text).iter().map(|line| line.code.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_stands_in_strings_and_comments_is_not_code() {
        let text = "let a = \"unsafe \\\" x\"; // unsafe here\nlet b = r#\"unsafe \" y\"#; /* unsafe /* deeper */ still */ call();\n";
        assert!(!code(text).contains("unsafe"), "{}", code(text));
        assert!(code(text).contains("call();"));
        assert!(lines("x.rs", text)[0].comment.contains("unsafe here"));
    }

    #[test]
    fn a_quote_in_a_character_opens_no_string_and_a_lifetime_no_character() {
        let text = "if letter == '\"' { unsafe_thing() }\nfn f<'a>(x: &'a str) -> &'a str { x } // '\nlet c = '\\u{1f600}'; after();";
        assert!(code(text).contains("unsafe_thing"));
        assert!(code(text).contains("&'a str"));
        assert!(code(text).contains("after()"));
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_line_numbers() {
        let text = "let a = \"one\\\n two\n three\";\nlast();";
        let split = lines("x.rs", text);
        assert_eq!(split.len(), 4);
        assert_eq!(split[3].code, "last();");
    }

    #[test]
    fn groups_of_imports_are_spread_out() {
        let text = "use std::{fs, net::{IpAddr, TcpStream as Stream}, time::{self, Duration}};\nlet x = std::env::args();";
        let found: Vec<String> = paths(&lines("x.rs", text)).into_iter().map(|(_, path)| path).collect();
        assert_eq!(
            found,
            [
                "std::fs",
                "std::net::IpAddr",
                "std::net::TcpStream",
                "std::time",
                "std::time::Duration",
                "std::env::args"
            ]
        );
    }

    #[test]
    fn tests_begin_at_the_marked_module_and_not_at_a_marked_function() {
        let split = lines("x.rs", "#[cfg(test)]\nfn of() {}\nfn real() {}\n#[cfg(test)]\nmod tests {\n}\n");
        let marks: Vec<bool> = split.iter().map(|line| line.test).collect();
        assert_eq!(marks, [false, false, false, true, true, true]);
    }
}
