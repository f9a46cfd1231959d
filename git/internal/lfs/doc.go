// Package lfs puts the content of Git LFS objects in the place of their
// pointers (git-lfs specification, batch API and basic transfers).
//
// # Which files
//
// A file stands for an object when the attribute filter has the value lfs for
// it and its content is a pointer. Attributes are those of the .gitattributes
// files of the tree, read as gitattributes(5) has it: the last line that matches
// decides, macros defined at the top included. A pointer is text of less than
// 1024 bytes with the lines version, oid and size; one with extensions is an
// error, because nothing here can undo them.
//
// [Fill] gets what a view of the trees of some repositories shows: nothing is
// transferred for a pointer that no view shows.
//
// # Requests
//
// A [Client] asks the endpoint for at most 100 objects at a time and gets them
// from the links in the answer, six at a time. It follows redirects. Redirects and
// links lead to http and https only, never from https to http, and never from
// elsewhere to a loopback or link-local address, or to a name that has one; names
// behind a proxy are looked up by the proxy. Credentials:
//
//   - Those of the repository are shown to its origin (scheme, host, port)
//     only, and not with a link that brings its own Authorization.
//   - The header of a link goes to the origin of that link, that of
//     git-lfs-authenticate to the origin of its href; no redirect takes either
//     to another one.
//
// A request that breaks, or is answered by status 429, 500, 502, 503 or 504, is
// sent again, four times in all, after a second and then twice as long each time
// or when Retry-After says, which may be a minute away. A link that has expired is
// asked for again, twice.
//
// # Limits
//
// An answer of the endpoint has at most 10 MiB, an address 8 KiB. No more bytes are read of an
// object than its pointer tells. All objects together are in one temporary file.
// Content whose size or SHA-256 is not that of its pointer is an error.
package lfs
