//! The only door from names and texts to HTML. Literal markup must be `&'static str`; everything else passes `T`, which
//! escapes, so a name that comes from a scenario or a host cannot become markup by accident.

use std::fmt::Write;
pub(crate) use weir_core::text::visible;

/// Longest text that is shown whole, in characters; a hostile folder must not decide the size of the page.
const TEXT_CHARS_MAX: usize = 2_000;

/// HTML under construction. Built with `put!` from pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html {
    text: String,
}

impl Html {
    pub fn new() -> Self {
        Html::default()
    }
    pub fn len(&self) -> usize {
        self.text.len()
    }
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
    pub fn into_string(self) -> String {
        self.text
    }
}

/// Something that may be appended to a page.
pub(crate) trait Piece {
    fn put(self, out: &mut Html);
}

/// Markup, written in this crate's source.
impl Piece for &'static str {
    fn put(self, out: &mut Html) {
        out.text.push_str(self);
    }
}

impl Piece for Html {
    fn put(self, out: &mut Html) {
        out.text.push_str(&self.text);
    }
}

impl Piece for usize {
    fn put(self, out: &mut Html) {
        let _ = write!(out.text, "{self}");
    }
}

/// A coordinate, to a tenth of a pixel: more is invisible and costs bytes.
impl Piece for f64 {
    fn put(self, out: &mut Html) {
        let rounded = (self * 10.0).round() / 10.0;
        // A coordinate that is no number would void the whole drawing; a far one is clipped by the view box.
        let finite = if rounded.is_finite() { rounded.clamp(-1e5, 1e5) } else { 0.0 };
        let _ = write!(out.text, "{}", if finite == 0.0 { 0.0 } else { finite });
    }
}

/// Text from outside: escaped, control characters made visible, bounded.
pub(crate) struct T<S: AsRef<str>>(pub S);

impl<S: AsRef<str>> Piece for T<S> {
    fn put(self, out: &mut Html) {
        escape_into(self.0.as_ref(), &mut out.text);
    }
}

/// A sentence in which names stand between backticks, as they do in definitions: for people they stand in quotes.
pub(crate) struct Prose<'a>(pub &'a str);

impl Piece for Prose<'_> {
    fn put(self, out: &mut Html) {
        for (index, part) in self.0.split('`').enumerate() {
            let quote = match index {
                0 => "",
                odd if odd % 2 == 1 => "“",
                _ => "”",
            };
            put!(out, quote, T(part));
        }
    }
}

/// `put!(page, "<td>", T(name), "</td>")`
macro_rules! put {
    ($out:expr, $($piece:expr),+ $(,)?) => {{ $( $crate::escape::Piece::put($piece, &mut *$out); )+ }};
}
pub(crate) use put;

fn escape_into(text: &str, out: &mut String) {
    for (index, letter) in text.chars().enumerate() {
        if index == TEXT_CHARS_MAX {
            let _ = write!(out, "… ({} characters left out)", text.chars().count() - TEXT_CHARS_MAX);
            return;
        }
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(visible(other).unwrap_or(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escaped(text: &str) -> String {
        let mut out = Html::new();
        put!(&mut out, T(text));
        out.into_string()
    }

    #[test]
    fn markup_quotes_controls_and_direction_overrides_lose_their_power() {
        assert_eq!(escaped("<script>alert('x\")&"), "&lt;script&gt;alert(&#39;x&quot;)&amp;");
        assert_eq!(escaped("a\u{1b}[31mb\0"), "a␛[31mb␀");
        assert_eq!(escaped("abc\u{202e}def"), "abc\u{fffd}def");
        assert_eq!(escaped("שלום"), "שלום");
        assert_eq!(escaped("one\ntwo"), "one two");
    }

    #[test]
    fn a_text_of_a_megabyte_is_cut() {
        assert!(escaped(&"x".repeat(1 << 20)).len() < 3_000);
    }

    #[test]
    fn a_coordinate_that_is_no_number_does_not_void_the_drawing() {
        let mut out = Html::new();
        put!(&mut out, f64::NAN, " ", f64::INFINITY, " ", -0.01, " ", 12.345);
        assert_eq!(out.into_string(), "0 0 0 12.3");
    }

    proptest! {
        #[test]
        fn no_text_yields_markup(text in "\\PC{0,60}|[<>&\"'a-z\\x00-\\x1f]{0,60}") {
            let out = escaped(&text);
            prop_assert!(!out.contains(['<', '>', '"', '\'']));
            prop_assert!(out.chars().all(|letter| visible(letter).is_none()));
        }
    }

    #[test]
    fn names_between_backticks_stand_in_quotes_and_stay_escaped() {
        let mut out = Html::new();
        put!(&mut out, Prose("from `<a>` to `b`."));
        assert_eq!(out.into_string(), "from “&lt;a&gt;” to “b”.");
    }
}
