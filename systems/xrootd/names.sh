# What the disks hold stands under one root, as links; what is written anew XRootD deals over them itself (oss.space).
set -e
mkdir {{ run }}/names
{% for disk in disks %}
cp -rs {{ disk }}/. {{ run }}/names
mkdir {{ disk }}/.space
{% endfor %}
