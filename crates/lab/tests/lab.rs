//! Labs on the real kernel. They need root and /dev/net/tun, and are skipped aloud without.

mod lab {
    mod auxiliary;
    mod capture;
    mod corruption;
    mod help;
    mod ipv6;
    mod life;
    mod named;
    mod profile;
    mod round_trip;
    mod routers;
    mod transfer;
}
