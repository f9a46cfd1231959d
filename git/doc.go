// Package git fetches GitRepository objects (specification, "GitRepository").
//
// # Resolve
//
// A reference selects one commit; the precedence is commit, name, semver, tag,
// branch, and the branch is master when nothing is given. A branch, tag or
// name costs two small requests whatever the number of refs (Git protocol
// version 2), a semver range lists the tags, and a pinned commit costs none.
// Revisions are spelled NAME@sha1:HEX or sha1:HEX; repositories in the SHA-256
// object format have sha256 in that place.
//
//	branch            main@sha1:…
//	tag, semver       v1.2.3@sha1:…     the commit the tag leads to
//	name              refs/pull/1/head@sha1:…
//	commit            sha1:…
//	commit and branch main@sha1:…       proved to be on the branch before it is fetched
//
// Tags take part in a semver range when they have three numeric parts; a
// leading v is allowed. Among tags of equal precedence the one whose commit is
// youngest wins.
//
// # Fetch
//
// Whatever the reference, a fetch is one shallow transfer of one commit. There
// is no worktree: the received pack is spooled to an anonymous temporary file,
// every object is checked against its name, and the tree is read from the pack
// as an [io/fs.FS]. Symbolic links are left out of the artifact and reported.
// Servers that speak only protocol version 0 or 1 are served as well. Where a server of any version refuses to send a commit that is
// not the tip of a ref, the branch is deepened step by step until it holds the
// commit or its history ends; a note tells what that cost.
//
// # Includes
//
// The artifacts of spec.include are mounted over the tree in their order, before
// ignore rules apply: folders merge, and of two files the later wins. They come
// from [source.Env].Sources, whose objects must have their artifacts already;
// [source.Order] tells what comes first. A repository that includes itself,
// directly or not, is stalled. Towards the limits below counts all that is read of
// included artifacts, and what is mounted of them as often as it is.
//
// # Verification
//
// With spec.verify nothing is acted on or packed before the signatures hold
// (specification, "GitRepositoryVerification"; reference A9). Mode HEAD, the
// default, asks for that of the commit; Tag for that of the annotated tag that
// tag, semver or a name refs/tags/… selects; TagAndHEAD for both. The tag must
// bear its own name and lead to the commit. Signatures are OpenPGP or SSH; the
// Secret holds the keys, *.sshpub those of SSH and every other entry those of
// OpenPGP. Keys must be neither expired nor revoked now, strong enough and
// meant for signing data. Another Secret content or mode verifies again.
//
// # Sparse checkout and partial fetches
//
// With sparseCheckout the artifact holds the listed directories, what is in
// them, and the directories above them; the files above and beside them are not
// there. Ignore files there do not count either, as in the worktree of a sparse
// checkout; spec.ignore does, and its paths begin at the root of the repository.
// Every listed directory must exist at the revision.
//
// With sparseCheckout, and where spec.ignore looks as if it excludes whole
// directories, a server with the filter capability is asked for the commit and
// its trees first, then for the files that decide what is packed
// (.sourceignore, and .gitmodules, .gitattributes and .lfsconfig when they
// count), if there are any, and last for all other files that are packed: three
// requests, each object once. The whole tree is fetched in one go, and a note
// says so, where the server takes no part in that and where more than nine
// tenths of its files are needed.
//
// # Submodules
//
// With recurseSubmodules every submodule is in its place, at the commit that the
// tree pins, and so are submodules in submodules: at most 10 deep and 1000 in
// all. Each takes one shallow fetch, up to 8 at once, whatever is asked of it in
// several places. Those outside of sparseCheckout, and those of which
// spec.ignore leaves nothing, are not fetched. Ignore files in them count below them.
//
// The file .gitmodules in the root of the commit (1 MiB at most) has their URLs:
// http, https, ssh, scp's user@host:path, or ./ and ../ for what is relative to
// the URL of the repository above, as git resolves it. It is content of the
// repository, so everything else is an error that names the submodule:
// programs, local paths, passwords, a path with two entries or none. Nothing it
// names is run. A submodule with update = none is an empty directory,
// with a note, and so are all without recurseSubmodules.
//
// Credentials go by the origin (scheme, host and port) of a submodule: the entry
// of spec.submoduleCredentials for it; else those of spec.url, its provider's
// included, on the same origin; else none. The proxy is for all. The
// signature of the commit is verified before any submodule is fetched; those of
// submodules are not, since the commit names their content.
//
// # Git LFS
//
// With spec.lfs the pointers that would be packed are replaced by what they stand
// for: files with the attribute filter=lfs, of the repository and of its
// submodules, each from the endpoint of its own repository (URL.git/info/lfs, what
// git-lfs-authenticate tells over ssh, or lfs.url of .lfsconfig on the same origin
// or over https). Credentials go to the scheme, host and port of the repository
// alone; content is checked against its pointer. A repository that stands in for
// the URL has its objects in lfs/objects, and no other server is asked. Transfers count
// towards spec.timeout. Without spec.lfs a note tells of pointers.
//
// # Access
//
// The Secret of secretRef holds username and password, or bearerToken, and for
// a private authority or a client certificate ca.crt, tls.crt and tls.key; for
// ssh it holds identity, known_hosts and, for an encrypted key, password. They
// go to the scheme, host and port of spec.url and nowhere else. The Secret of
// proxySecretRef holds address (http, https or socks5), username and password.
//
// # Limits
//
// [source.Env].Limits bounds a commit: Bytes of the pack and of all files
// (default 4 GiB and 16 GiB), FileBytes of one object, of LFS too (1 GiB),
// Entries of the tree (4,000,000). They hold for a commit and its submodules
// together. A failure names the limit.
package git
