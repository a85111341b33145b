# Removes what a proxy has kept, all that is in its folder.
find {{ data }} -mindepth 1 -delete
