//! Text for a terminal of 80 columns.

use weir_core::text::{SHOWN_BYTES_MAX, shown};

/// `head` and then text, broken at 80 columns and continued at column `hang`; letters that steer a terminal are not let
/// through.
pub(super) fn hanging(out: &mut String, head: &str, hang: usize, text: &str) {
    let clean = shown(text, SHOWN_BYTES_MAX);
    out.push_str(head);
    let mut column = head.chars().count();
    for (index, word) in clean.split(' ').enumerate() {
        let width = word.chars().count();
        if index > 0 && column + 1 + width > 80 && column > hang {
            out.push('\n');
            out.push_str(&" ".repeat(hang));
            column = hang;
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}
