//! Bytes as text in JSON: base 64 (RFC 4648, section 4), without padding.

use data_encoding::BASE64_NOPAD;
use serde::{Deserialize, Deserializer, Serializer, de};

pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_NOPAD.encode(bytes))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    let bytes = BASE64_NOPAD.decode(text.as_bytes());
    bytes.map_err(|error| de::Error::custom(format_args!("packed samples are not base 64: {error}")))
}
