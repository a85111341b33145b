//! Patterns over names: `*` for any run of letters, `?` for one, `[0-3]` for a number in a range.

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Letter(char),
    One,
    Run,
    Number(u64, u64),
}

/// A parsed pattern; matching takes time proportional to pattern × name, whatever the pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Glob(Vec<Token>);

impl Glob {
    /// Errors: a `[` that does not begin a range of numbers, an empty or overlong pattern.
    pub fn parse(pattern: &str) -> Result<Glob, String> {
        if pattern.is_empty() || pattern.len() > 256 {
            return Err(format!("a pattern has 1 to 256 letters, this one {}", pattern.len()));
        }
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            tokens.push(match letter {
                '*' => Token::Run,
                '?' => Token::One,
                '[' => {
                    let range = rest.split_once(']').and_then(|(range, after)| {
                        let (least, most) = range.split_once('-')?;
                        Some((least.parse().ok()?, most.parse().ok()?, after))
                    });
                    let Some((least, most, after)) = range else {
                        return Err(format!("`[` in {pattern:?} begins no range of numbers like [0-3]"));
                    };
                    if least > most {
                        return Err(format!("the range [{least}-{most}] in {pattern:?} is empty"));
                    }
                    rest = after;
                    Token::Number(least, most)
                }
                other => Token::Letter(other),
            });
        }
        Ok(Glob(tokens))
    }

    /// True for a plain name.
    pub fn is_plain(&self) -> bool {
        self.0.iter().all(|token| matches!(token, Token::Letter(_)))
    }

    pub fn matches(&self, name: &str) -> bool {
        let letters: Vec<char> = name.chars().collect();
        let mut reached = vec![false; letters.len() + 1];
        reached[0] = true;
        for token in &self.0 {
            let mut next = vec![false; letters.len() + 1];
            for at in (0..=letters.len()).filter(|at| reached[*at]) {
                match token {
                    Token::Letter(letter) if letters.get(at) == Some(letter) => next[at + 1] = true,
                    Token::One if at < letters.len() => next[at + 1] = true,
                    Token::Letter(_) | Token::One => {}
                    Token::Run => {
                        next[at..].fill(true);
                        break;
                    }
                    Token::Number(least, most) => {
                        let mut number = 0u64;
                        for (index, letter) in letters[at..].iter().enumerate().take(18) {
                            let Some(digit) = letter.to_digit(10) else { break };
                            number = number * 10 + u64::from(digit);
                            if (*least..=*most).contains(&number) {
                                next[at + index + 1] = true;
                            }
                            if number == 0 {
                                break; // 07 is no number of a host
                            }
                        }
                    }
                }
            }
            reached = next;
        }
        reached[letters.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn stars_and_ranges_match_names_and_nothing_beside_them() {
        assert!(matches("left-*", "left-12") && !matches("left-*", "right-0"));
        assert!(matches("pi-[2-7]", "pi-7") && !matches("pi-[2-7]", "pi-8") && !matches("pi-[2-7]", "pi-1"));
        assert!(matches("pi-[0-12]", "pi-12") && !matches("pi-[0-12]", "pi-112"));
        assert!(!matches("pi-[0-9]", "pi-07"));
        assert!(matches("host.*.access.*", "host.a-0.access.forward"));
        assert!(matches("l?nk", "link") && !matches("l?nk", "lnk"));
        assert!(Glob::parse("a[b-c]").is_err() && Glob::parse("a[3-1]").is_err() && Glob::parse("").is_err());
    }

    #[test]
    fn a_pattern_made_to_backtrack_is_matched_at_once() {
        assert!(!matches(&"*a".repeat(100), &"a".repeat(60)));
    }
}
