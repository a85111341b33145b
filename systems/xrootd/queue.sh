# Says each second what the queue of copies holds: those under way, those that wait, and how long these have.
slots={{ option['staging-slots'] }}
while sleep 1; do
    frm_admin -c {{ state }}/xrootd.cf -n {{ service }} query xfrq all lfn qwt 2>/dev/null |
        awk -v slots=$slots '
            $1 ~ /^\// { waits[++number] = $2 }
            END {
                taken = number < slots ? number : slots
                for (at = 1; at <= number; at++) total += waits[at]
                printf "slots %d\ntaken %d\nwaiters %d\nwait_seconds %.3f\n", slots, taken, number - taken, number ? total / number : 0
            }' >{{ run }}/queue.new
    mv {{ run }}/queue.new {{ run }}/queue
done
