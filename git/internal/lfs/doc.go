// Package lfs replaces Git LFS pointers by the content of their objects (git-lfs
// specification, batch API and basic transfers).
//
// # Which files
//
// A file stands for an object when the attribute filter has the value lfs for it and
// its content is a pointer. Attributes come from the .gitattributes files of the
// tree, as in gitattributes(5): the last line that matches decides, and the file at
// the top may define macros. A pointer is text of less than 1024 bytes with the lines
// version, oid and size; one with extensions is an error, because this package cannot
// undo them.
//
// [Fill] fetches the objects of all pointers in a view of one or more trees. Nothing
// is transferred for a pointer that the view does not show.
//
// # Requests
//
// A [Client] asks the endpoint for at most 100 objects at a time and downloads them
// from the links in the answer, six at a time. It follows redirects. Redirects and
// links may lead only to http and https, never from https to http, and never from
// another network to a loopback or link-local address, or to a name that has one;
// behind a proxy, the proxy looks up the names. Credentials:
//
//   - The credentials of the repository are sent to its origin (scheme, host, port)
//     only, and not with a link that brings its own Authorization.
//   - The header fields of a link are sent to the origin of that link, those of
//     git-lfs-authenticate to the origin of its href; after a redirect to another
//     origin they are not sent.
//
// A request that breaks, or is answered by status 429, 500, 502, 503 or 504, is sent
// up to four times. The client waits one second, then twice as long each time, or as
// long as Retry-After says; a wait of more than a minute is an error. It asks again
// for a link that has expired, twice.
//
// # Limits
//
// An answer of the endpoint has at most 10 MiB, an address 8 KiB. The client reads no
// more of an object than the size in its pointer. All objects together are in one
// temporary file. Content whose size or SHA-256 does not match its pointer is an
// error.
package lfs
