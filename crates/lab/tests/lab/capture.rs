use super::help::{possible, start, two_sites};
use std::process::Command;
use std::time::Duration;
use weir_core::schedule::{Change, Set};
use weir_lab::capture::{Epoch, Request};
use weir_sys::clock::monotonic;
use weir_sys::netns::run_in;

/// Blocks of a pcapng file: kind and body.
fn blocks(bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        blocks.push((word(at), &bytes[at + 8..at + length - 4]));
        at += length;
    }
    blocks
}

// Spec: lab.md#lab-22
#[test]
fn a_capture_has_every_packet_of_its_ports_at_its_time_and_marks_those_that_were_dropped() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(2), 1500));
    let file = tempfile::NamedTempFile::new().unwrap();
    let begin = monotonic();
    let request = Request {
        ports: vec!["link.wan".to_owned()],
        snap_bytes: Some(64),
        count: None,
        duration_ns: None,
        epoch: Epoch::At(begin.as_ns()),
    };
    let number = lab.capture(&request, file.path()).unwrap();
    let ping = |lab: &weir_lab::Lab| {
        let arguments = ["-c", "5", "-i", "0.02", "-W", "1", "-s", "1000", "10.64.0.2"];
        run_in(lab.namespace(0), || Command::new("ping").args(arguments).output().unwrap()).unwrap()
    };
    assert!(ping(&lab).status.success());
    lab.schedule(&[Change { at_ns: 0, link: 4, set: Set::Loss(Some(1.0)) }]).unwrap();
    ping(&lab);
    let outcome = lab.end_capture(number).unwrap();
    let end_ns = monotonic().as_ns() - begin.as_ns();
    assert_eq!(
        (outcome.packets, outcome.lost, outcome.error.clone()),
        (5 + 5 + 5 + 5, 0, None),
        "{outcome:?}"
    );

    let bytes = std::fs::read(file.path()).unwrap();
    let blocks = blocks(&bytes);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds[..3], [0x0a0d_0d0a, 1, 1]);
    assert_eq!(kinds[kinds.len() - 2..], [5, 5]);
    let packets: Vec<&[u8]> = blocks.iter().filter(|(kind, _)| *kind == 6).map(|(_, body)| *body).collect();
    let word = |body: &[u8], at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
    let mut last_ns = 0;
    for body in &packets {
        let time_ns = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
        assert!((last_ns..end_ns).contains(&time_ns), "{time_ns} after {last_ns}, before {end_ns}");
        last_ns = time_ns;
        assert_eq!((word(body, 12), word(body, 16)), (4 + 64, 4 + 1028));
    }
    let dropped = |body: &&&[u8]| String::from_utf8_lossy(body).contains("dropped: lost on the wire");
    assert_eq!(packets.iter().filter(dropped).count(), 5);
    assert_eq!(packets.iter().filter(|body| word(body, 0) == 1).count(), 5, "the way back");
}

#[test]
fn a_capture_of_a_port_that_is_not_there_is_refused_with_those_that_are() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(None, Duration::ZERO, 1500));
    let file = tempfile::NamedTempFile::new().unwrap();
    let request = |port: &str| Request {
        ports: vec![port.to_owned()],
        snap_bytes: None,
        count: None,
        duration_ns: None,
        epoch: Epoch::Lab,
    };
    let refused = lab.capture(&request("lan"), file.path()).unwrap_err().to_string();
    assert!(refused.contains("\"lan\"") && refused.contains("link.wan.forward"), "{refused}");
    let nowhere = lab.capture(&request("wan"), std::path::Path::new("/no/such/folder/x.pcapng")).unwrap_err();
    assert!(nowhere.to_string().contains("/no/such/folder"), "{nowhere}");
    assert!(lab.end_capture(7).unwrap_err().to_string().contains("no capture 7"));
}
