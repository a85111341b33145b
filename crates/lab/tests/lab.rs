//! Labs on the real kernel. They need root and /dev/net/tun, and are skipped aloud without.

mod lab {
    mod help;
    mod round_trip;
}
