# What the origin has of the path $2: a file's size, or the names in a folder. 2 is "no such file".
# An archive that is gone is given up after some 10 s; as packaged the client tries for ten minutes.
export XRD_CONNECTIONWINDOW=5 XRD_CONNECTIONRETRY=2 XRD_STREAMERRORWINDOW=0 XRD_TIMEOUTRESOLUTION=1
case $1 in
statx)
    said=$(xrdfs {{ origin }} stat "$2") || { echo -2; exit; }
    size=$(echo "$said" | sed -n 's/^Size: *//p')
    case $said in *IsDir*) kind=d ;; *) kind=- ;; esac
    echo 0
    echo "$kind rw-r--r-- 1 0 0 0 0 0 $size 4096 $((size / 512 + 1))"
    ;;
dlist)
    said=$(xrdfs {{ origin }} ls "$2") || { echo -2; exit; }
    echo 0
    echo "$said" | sed 's|.*/||'
    ;;
*)
    echo -2
    ;;
esac
