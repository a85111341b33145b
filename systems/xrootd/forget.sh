# Removes what was copied.
[ -e {{ run }}/copied ] || exit 0
while read -r path; do
    rm -f "$path" "$path".*
done <{{ run }}/copied
rm {{ run }}/copied
