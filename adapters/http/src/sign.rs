//! Signatures of S3 requests: AWS Signature Version 4, with payloads that are not signed.

use crate::place::escaped;
use jiff::Timestamp;
use ring::{digest, hmac};

/// What the payload's hash is said to be: TCP and TLS check it, and a hash of every byte would be the load.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    pub secret: String,
    pub region: String,
}

/// Headers that make a request a signed one: its date, the payload's hash and the signature.
pub fn headers(
    key: &Key,
    method: &str,
    host: &str,
    path: &str,
    query: &[(&str, String)],
    now: Timestamp,
) -> [(&'static str, String); 3] {
    let moment = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/{}/s3/aws4_request", &moment[..8], key.region);
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "{method}\n{path}\n{}\nhost:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{moment}\n\n{names}\n{UNSIGNED}",
        query_text(query)
    );
    let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{}", hex(hash.as_ref()));
    let mut derived = format!("AWS4{}", key.secret).into_bytes();
    for part in [&moment[..8], &key.region, "s3", "aws4_request", &to_sign] {
        let signer = hmac::Key::new(hmac::HMAC_SHA256, &derived);
        derived = hmac::sign(&signer, part.as_bytes()).as_ref().to_vec();
    }
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
        key.name,
        hex(&derived)
    );
    [("x-amz-date", moment), ("x-amz-content-sha256", UNSIGNED.to_owned()), ("authorization", authorization)]
}

/// The parameters in the order of their names, escaped.
pub fn query_text(query: &[(&str, String)]) -> String {
    let mut parts: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{}={}", escaped(name, false), escaped(value, false)))
        .collect();
    parts.sort_unstable();
    parts.join("&")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
