//! The valid name a misspelt one most likely meant.

/// Edits a typist makes: insertions, deletions, substitutions and swaps of neighbours, each counted once.
/// Source: Damerau, CACM 7(3), 1964, in the restricted form (no letter edited twice).
fn distance(left: &[char], right: &[char]) -> usize {
    let width = right.len() + 1;
    let mut rows = vec![vec![0; width]; left.len() + 1];
    for (index, row) in rows.iter_mut().enumerate() {
        row[0] = index;
    }
    rows[0] = (0..width).collect();
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let differs = usize::from(left[i - 1] != right[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[left.len()][right.len()]
}

/// The candidate nearest to `name`, the first of several; `None` where none is near enough to be a slip.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names are at most 63 letters; what is longer than any name is not a slip of one.
    let letters: Vec<char> = name.chars().take(81).collect();
    if letters.len() > 80 {
        return None;
    }
    let most = (letters.len() / 3).max(1) + 1;
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other: Vec<char> = candidate.chars().take(120).collect();
        if other.len().abs_diff(letters.len()) > most {
            continue;
        }
        let edits = distance(&letters, &other);
        if edits <= most && edits < other.len().max(2) && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `did you mean "x"?`, or else the whole choice.
pub(crate) fn suggestion<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<String> {
    if let Some(near) = nearest(name, candidates.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let mut all: Vec<&str> = candidates.into_iter().collect();
    if all.is_empty() {
        return None;
    }
    let more = all.len().saturating_sub(24);
    all.truncate(24);
    let dots = if more > 0 { format!(", … ({more} more)") } else { String::new() };
    Some(format!("valid here: {}{dots}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_name_and_nonsense_does_not() {
        let keys = ["rate", "rtt", "delay", "duration", "warm_up"];
        assert_eq!(nearest("raet", keys), Some("rate"));
        assert_eq!(nearest("durtaion", keys), Some("duration"));
        assert_eq!(nearest("warmup", keys), Some("warm_up"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }

    #[test]
    fn neighbours_swapped_are_one_edit() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("raet"), &chars("rate")), 1);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
