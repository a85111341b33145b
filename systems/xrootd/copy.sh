# Copies the file $1 from the origin to $2, under the name that it has until it is whole.
# An archive that is gone is given up after some 10 s; as packaged the client tries for ten minutes.
export XRD_CONNECTIONWINDOW=5 XRD_CONNECTIONRETRY=2 XRD_STREAMERRORWINDOW=0 XRD_TIMEOUTRESOLUTION=1
echo "${2%.anew}" >>{{ run }}/copied
exec xrdcp --force --silent "{{ origin }}/$1" "$2"
