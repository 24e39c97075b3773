# Where the image of this name was made from Debian packages: the user and the folder that the real one has.
FROM docker.io/valkey/valkey:9.1.1-alpine
RUN groupadd --gid 1000 valkey && useradd --uid 999 --gid 1000 --no-create-home valkey \
    && install -d -o valkey -g valkey /data
WORKDIR /data
