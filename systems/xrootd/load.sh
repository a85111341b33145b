# Says each second, in percent: run queue, processors, memory, paging, and what this host sends of what it can. Others than the last are alike
# on all servers of one machine, and stay 0.
before=0
while :; do
    sent=0
    while read -r name _ _ _ _ _ _ _ _ bytes _; do
        case $name in lo:* | Inter* | face*) ;; *) sent=$((sent + bytes)) ;; esac
    done </proc/net/dev
    percent=$(((sent - before) * 100 / {{ (option.balance / 8) | int }}))
    [ "$before" = 0 ] && percent=0
    [ "$percent" -gt 100 ] && percent=100
    echo "0 0 0 0 $percent"
    before=$sent
    sleep 1
done
