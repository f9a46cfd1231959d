// Package git fetches GitRepository objects (specification, "GitRepository").
//
// # Resolve
//
// A reference selects one commit; the precedence is commit, name, semver, tag,
// branch, and the branch is master if nothing is given. A branch, tag or name costs
// two small requests whatever the number of refs (Git protocol version 2), a semver
// range lists the tags, and a pinned commit costs none. Revisions are written
// NAME@sha1:HEX or sha1:HEX; for repositories in the SHA-256 object format, sha256
// replaces sha1.
//
//	branch            main@sha1:…
//	tag, semver       v1.2.3@sha1:…     the commit the tag leads to
//	name              refs/pull/1/head@sha1:…
//	commit            sha1:…
//	commit and branch main@sha1:…       proved to be on the branch before it is fetched
//
// A semver range considers tags that have three numeric parts; a leading v is
// allowed. Among tags of equal precedence the one whose commit is youngest wins.
//
// # Fetch
//
// Whatever the reference, a fetch is one shallow transfer of one commit. There is no
// worktree: the received pack is spooled to an anonymous temporary file, every object
// is checked against its name, and the tree is read from the pack as an [io/fs.FS].
// Symbolic links are left out of the artifact and reported. Servers that speak only
// protocol version 0 or 1 are supported too. If a server refuses to send a commit
// that is not the tip of a ref, the branch is deepened step by step until it holds
// the commit or its history ends; a note reports what that cost.
//
// # Includes
//
// The artifacts of spec.include are mounted over the tree in their order, before
// ignore rules apply: folders merge, and of two files the later wins. They come from
// [source.Env].Sources, whose objects must have their artifacts already;
// [source.Order] returns the order of objects. A repository that includes itself,
// directly or not, is stalled. The limits below apply to all included artifacts
// together, and to all that is mounted of them, where a file that is mounted twice
// counts twice.
//
// # Verification
//
// With spec.verify nothing is acted on or packed before the signatures are verified
// (specification, "GitRepositoryVerification"; reference A9). Mode HEAD, the default,
// requires a signed commit; Tag requires a signed annotated tag, which tag, semver or
// a name refs/tags/… selects; TagAndHEAD requires both. The tag object must bear the
// name of the tag and lead to the commit. Signatures are OpenPGP or SSH; the entries
// *.sshpub of the Secret hold SSH keys, all other entries OpenPGP keys. Keys must be
// neither expired nor revoked now, strong enough and meant for signing data. If the
// content of the Secret or the mode changes, the revision is verified again.
//
// # Sparse checkout and partial fetches
//
// With sparseCheckout the artifact holds the listed directories with their content
// and the directories above them, but no files above or beside them. Ignore files
// above or beside them have no effect, as in the worktree of a sparse checkout;
// spec.ignore applies, and its paths begin at the root of the repository. Every
// listed directory must exist at the revision.
//
// With sparseCheckout, or if spec.ignore seems to exclude whole directories, a server
// with the filter capability gets three requests: for the commit and its trees, for
// the files that decide what is packed (.sourceignore, and .gitmodules,
// .gitattributes and .lfsconfig when they matter), if there are any, and for all
// other files that are packed. Each object is transferred once. If the server does
// not support that, or if more than nine tenths of the files are needed, the whole
// tree is fetched at once, and a note says so.
//
// # Submodules
//
// With recurseSubmodules the artifact holds every submodule at the commit that the
// tree pins, and their submodules too: at most 10 deep and 1000 in all. Each takes
// one shallow fetch, even if it is needed in several places; up to 8 fetches run at
// once. Submodules outside of sparseCheckout, and those that spec.ignore excludes
// completely, are not fetched. Ignore files in a submodule apply below it.
//
// The file .gitmodules in the root of the commit (1 MiB at most) has their URLs:
// http, https, ssh, scp's user@host:path, or ./ and ../ for a URL relative to that of
// the parent repository, as git resolves it. The file is untrusted content of the
// repository, so everything else in it is an error that names the submodule:
// programs, local paths, passwords, a path with two entries or none. No command in it
// is run. A submodule with update = none is an empty directory, with a note, and so
// are all submodules without recurseSubmodules.
//
// The origin (scheme, host and port) of a submodule decides its credentials: the
// entry of spec.submoduleCredentials for that origin; else, on the origin of
// spec.url, the credentials of spec.url, including those of its provider; else none.
// The proxy applies to all submodules. The signature of the commit is verified before
// any submodule is fetched; signatures in submodules are not verified, because the
// commit pins their content.
//
// # Git LFS
//
// With spec.lfs, LFS objects replace the pointers that would be packed. Pointers are
// files with the attribute filter=lfs, in the repository and in its submodules. Each
// object comes from the endpoint of its own repository: URL.git/info/lfs, the answer
// of git-lfs-authenticate over ssh, or lfs.url of .lfsconfig on the same origin or
// over https. Credentials are sent only to the scheme, host and port of the
// repository; content is checked against its pointer. A local repository that
// replaces the URL has its objects in lfs/objects, and no server is contacted.
// Transfers count towards spec.timeout. Without spec.lfs a note reports how many
// pointers there are.
//
// # Access
//
// The Secret of secretRef holds username and password, or bearerToken, and for a
// private authority or a client certificate ca.crt, tls.crt and tls.key; for ssh it
// holds identity, known_hosts and, for an encrypted key, password. They are sent to
// the scheme, host and port of spec.url and nowhere else. The Secret of
// proxySecretRef holds address (http, https or socks5), username and password.
//
// # Limits
//
// [source.Env].Limits bounds a commit: Bytes of the pack and of all files (default 4
// GiB and 16 GiB), FileBytes of one object or LFS object (1 GiB), Entries of the tree
// (4,000,000). They apply to a commit and its submodules together. An error names the
// limit that was exceeded.
package git
