//! Names of errors of the system, as records and manual pages write them.

use std::io::{self, ErrorKind};

macro_rules! names {
    ($($name:ident)*) => {
        /// `ECONNRESET`; `None` for a number that Linux does not use.
        fn of_number(number: i32) -> Option<&'static str> {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }

        /// 5 for `EIO`; `None` for a name that Linux does not use.
        pub fn number(name: &str) -> Option<i32> {
            match name {
                $(stringify!($name) => Some(libc::$name),)*
                _ => None,
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV ENODEV
    ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG
    ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA ETIME ENOSR ENONET ENOLINK EPROTO EBADMSG EOVERFLOW EUSERS ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN
    ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED
    EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY
    EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
}

/// The name of the errno behind `error`: its own number's or, of an error that was put into words, that of the one number its kind
/// stands for. `None` where it is none of the system's, such as an end that came too early.
pub fn name(error: &io::Error) -> Option<&'static str> {
    error.raw_os_error().map_or_else(|| of_kind(error.kind()), of_number)
}

fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NotFound => "ENOENT",
        ErrorKind::ConnectionRefused => "ECONNREFUSED",
        ErrorKind::ConnectionReset => "ECONNRESET",
        ErrorKind::ConnectionAborted => "ECONNABORTED",
        ErrorKind::NotConnected => "ENOTCONN",
        ErrorKind::HostUnreachable => "EHOSTUNREACH",
        ErrorKind::NetworkUnreachable => "ENETUNREACH",
        ErrorKind::NetworkDown => "ENETDOWN",
        ErrorKind::AddrInUse => "EADDRINUSE",
        ErrorKind::AddrNotAvailable => "EADDRNOTAVAIL",
        ErrorKind::BrokenPipe => "EPIPE",
        ErrorKind::TimedOut => "ETIMEDOUT",
        ErrorKind::StorageFull => "ENOSPC",
        ErrorKind::QuotaExceeded => "EDQUOT",
        ErrorKind::StaleNetworkFileHandle => "ESTALE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_errnos_name_though_it_was_put_into_words() {
        let reset = io::Error::from_raw_os_error(libc::ECONNRESET);
        let told = io::Error::new(reset.kind(), format!("burst 3: {reset}"));
        assert_eq!([name(&reset), name(&told)], [Some("ECONNRESET"); 2]);
        assert_eq!(name(&io::Error::from_raw_os_error(libc::EKEYREVOKED)), Some("EKEYREVOKED"));
        assert_eq!(name(&io::Error::new(ErrorKind::UnexpectedEof, "ended")), None);
        assert_eq!(name(&io::Error::from_raw_os_error(9_999)), None);
    }
}
