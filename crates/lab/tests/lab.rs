//! Labs on the real kernel. They need root and /dev/net/tun, and are skipped aloud without.

mod lab {
    mod help;
    mod life;
    mod named;
    mod round_trip;
    mod transfer;
}
