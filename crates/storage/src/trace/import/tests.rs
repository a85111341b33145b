//! Files that the foreign tools themselves wrote (`tests/data`), and what is wrong with others.

use super::*;

fn of(name: &str, text: &str, below: Option<&str>) -> Result<Imported, TraceError> {
    import(format(name).unwrap(), text.as_bytes(), below)
}

fn moved(imported: &Imported, is_write: bool) -> (usize, u64) {
    let of = imported.records.iter().filter(|record| record.is_write == is_write);
    of.fold((0, 0), |(count, bytes), record| (count + 1, bytes + u64::from(record.length_bytes)))
}

// Spec: replay.md#trace-3
#[test]
fn what_fio_xrootd_darshan_and_strace_wrote_is_read_as_it_was_meant() {
    let fio = of("fio-iolog", include_str!("../../../tests/data/fio-3.iolog"), None).unwrap();
    assert_eq!((fio.files, fio.folder.as_str(), fio.is_timed), (vec!["fa".to_owned()], "/data", true));
    assert_eq!((fio.records.len(), fio.left_out), (6, 3));
    let (first, last) = (fio.records[0], fio.records[5]);
    assert_eq!((first.at_ns, first.offset, first.length_bytes), (0, 61_440, 4_096));
    assert_eq!((last.at_ns, fio.records[3].is_write), (5_813_000, true));

    let recorder = include_str!("../../../tests/data/xrdcl-recorder.csv");
    let whole = of("xrdcl-recorder", recorder, Some("/data/")).unwrap();
    assert_eq!(whole.files, ["f1", "f2"]);
    assert_eq!((moved(&whole, false), moved(&whole, true)), ((1, 2_097_152), (1, 2_097_152)));
    assert_eq!(whole.records[1].at_ns, 6_425_858);

    let darshan = of("darshan-dxt", include_str!("../../../tests/data/darshan-dxt.txt"), None).unwrap();
    assert_eq!(darshan.files, ["test123.h5"]);
    // Four processes: 7, 6, 5 and 5 writes, 12 and three times 8 reads.
    assert_eq!((moved(&darshan, true).0, moved(&darshan, false).0), (23, 36));
    assert!(darshan.records.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns), "merged by time");

    let strace = of("strace", include_str!("../../../tests/data/strace.txt"), None).unwrap();
    assert_eq!(strace.files, ["f1", "f3"]);
    // dd skipped three blocks by seeking on a descriptor that was made a copy of.
    let offsets: Vec<(bool, u64)> = strace.records.iter().map(|it| (it.is_write, it.offset)).collect();
    let block = 65_536;
    let wanted: Vec<(bool, u64)> =
        (0..3).flat_map(|n| [(false, (3 + n) * block), (true, n * block)]).collect();
    assert_eq!(offsets, wanted);
}

// Spec: replay.md#trace-3
#[test]
fn calls_of_several_threads_that_strace_saw_interleaved_are_put_together() {
    let text = "\
7 100.000000 openat(AT_FDCWD</>, \"/d/a\", O_RDONLY) = 3</d/a> <0.1>
7 100.100000 read(3</d/a>,  <unfinished ...>
8 100.200000 pread64(3</d/a>, \"\"..., 10, 500) = 10 <0.1>
7 100.300000 <... read resumed>\"\"..., 100) = 40 <0.2>
7 100.400000 read(3</d/a>, \"x) = 7\", 100) = 60 <0.1>
7 100.500000 read(3</d/a>, \"\", 100) = 0 <0.1>
7 100.600000 read(5<pipe:[9]>, \"\"..., 100) = 100 <0.1>
7 100.700000 read(3</d/a>, 0x0, 100) = -1 EFAULT (Bad address) <0.1>
7 100.800000 +++ exited with 0 +++
";
    let imported = of("strace", text, None).unwrap();
    let records: Vec<(u64, u64, u32)> =
        imported.records.iter().map(|it| (it.at_ns / 1_000_000, it.offset, it.length_bytes)).collect();
    assert_eq!(records, [(0, 0, 40), (100, 500, 10), (300, 40, 60)]);
    assert_eq!(imported.left_out, 3);
}

// Spec: replay.md#trace-2
#[test]
fn lists_of_two_numbers_are_taken_in_the_order_that_is_said() {
    for (name, text) in [("offset-length", "100 7\r\n\r\n200,8\n"), ("length-offset", "7 100\n8;200")] {
        let imported = of(name, text, None).unwrap();
        let records: Vec<(u64, u32)> =
            imported.records.iter().map(|it| (it.offset, it.length_bytes)).collect();
        assert_eq!((records, imported.is_timed), (vec![(100, 7), (200, 8)], false), "{name}");
    }
}

// Spec: replay.md#trace-4
#[test]
fn a_line_that_is_wrong_is_named_by_its_number() {
    for (name, text, wanted) in [
        ("offset-length", "1 2\n3\n", "line 2: 1 fields, and two are expected"),
        ("offset-length", "-1 2\n", "line 1: offset -1 is negative"),
        (
            "offset-length",
            "1 9223372036854775808\n",
            "line 1: length 9223372036854775808 is more than 2000000000",
        ),
        (
            "length-offset",
            "1 99999999999999999999999\n",
            "line 1: offset 99999999999999999999999 is more than",
        ),
        ("offset-length", "", "no read or write"),
        ("fio-iolog", "fio version 1 iolog\n", "line 1: neither"),
        ("fio-iolog", "fio version 3 iolog\n10 /f read 0\n", "line 2: no length"),
        ("fio-iolog", "fio version 3 iolog\n10 /f jump 0 1\n", "line 2: \"jump\" is no action"),
        ("darshan-dxt", " X_POSIX 0 read 0 0 1 0.1 0.2\n", "line 1: no `# DXT, file_id`"),
        (
            "xrdcl-recorder",
            "\"1\",\"Read\",\"1.0\",\"0;1;0\",\"2.0\",\"[SUCCESS]\",\"\"\n",
            "line 1: of a file that is not open",
        ),
        ("xrdcl-recorder", "1,Read\n", "line 1: not a line of quoted fields"),
        ("strace", "read(3</f>, \"\", 1) = 1\n", "line 1: no time"),
        ("strace", "1 1.5 read(3, \"\", 1) = 1\n", "line 1: no file at the descriptor"),
    ] {
        let error = of(name, text, None).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{name}: {error}");
    }
    let elsewhere = of("fio-iolog", "fio version 3 iolog\n10 /f read 0 1\n", Some("/data")).unwrap_err();
    assert!(elsewhere.to_string().contains("1 are of files elsewhere"), "{elsewhere}");
}

// Spec: replay.md#trace-4
#[test]
fn ten_thousand_damaged_traces_are_read_or_refused() {
    let originals = [
        ("fio-iolog", include_str!("../../../tests/data/fio-3.iolog")),
        ("xrdcl-recorder", include_str!("../../../tests/data/xrdcl-recorder.csv")),
        ("darshan-dxt", include_str!("../../../tests/data/darshan-dxt.txt")),
        ("strace", include_str!("../../../tests/data/strace.txt")),
    ];
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = weir_core::seed::split(state, "damage");
        (state % below as u64) as usize
    };
    let mut refused = 0;
    for _ in 0..2_500 {
        for (name, original) in originals {
            let mut bytes = original.as_bytes().to_vec();
            for _ in 0..=draw(4) {
                let at = draw(bytes.len());
                bytes[at] = draw(256) as u8;
            }
            bytes.truncate(bytes.len() - draw(3) * draw(bytes.len()) / 4);
            refused += u32::from(import(format(name).unwrap(), &bytes[..], None).is_err());
        }
    }
    assert!(refused > 1_000, "{refused}");
}
