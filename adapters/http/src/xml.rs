//! Answers in XML, of which only the text of some elements matters.

use quick_xml::Reader;
use quick_xml::events::Event;

/// Deeper than this nothing that we read is.
const DEPTH_MAX: usize = 64;

/// Each element of `document` with the name of the one around it, `AROUND/NAME` without prefixes, and its text, in order.
///
/// Errors: it is no XML, in words.
pub fn texts(document: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut reader = Reader::from_reader(document);
    let mut around: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut text = String::new();
    let name_in = |around: &[String], name: &str| match around.last() {
        Some(outer) => format!("{outer}/{name}"),
        None => name.to_owned(),
    };
    loop {
        match reader.read_event().map_err(|error| format!("no XML: {error}"))? {
            Event::Eof if around.is_empty() => return Ok(found),
            Event::Eof => return Err(format!("no XML: it ends within {:?}", around.concat())),
            Event::Start(start) => {
                text.clear();
                around.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                if around.len() > DEPTH_MAX {
                    return Err("no XML of a server: it is too deep".to_owned());
                }
            }
            Event::Empty(empty) => {
                let name = String::from_utf8_lossy(empty.local_name().as_ref()).into_owned();
                found.push((name_in(&around, &name), String::new()));
            }
            Event::Text(piece) => text.push_str(&piece.decode().map_err(|error| format!("no XML: {error}"))?),
            Event::CData(piece) => text.push_str(&String::from_utf8_lossy(&piece)),
            Event::GeneralRef(entity) => {
                let character = entity.resolve_char_ref().ok().flatten();
                let name = String::from_utf8_lossy(&entity);
                match (character, quick_xml::escape::resolve_xml_entity(&name)) {
                    (Some(character), _) => text.push(character),
                    (None, Some(known)) => text.push_str(known),
                    (None, None) => return Err(format!("no XML: &{name}; is not known")),
                }
            }
            Event::End(_) => {
                if let Some(name) = around.pop() {
                    found.push((name_in(&around, &name), std::mem::take(&mut text)));
                }
            }
            _ => {}
        }
    }
}

/// The text of the first element of that name.
pub fn first<'a>(texts: &'a [(String, String)], name: &str) -> Option<&'a str> {
    texts.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
}
