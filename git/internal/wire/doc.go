// Package wire is the client side of the Git protocol: it asks a remote
// repository for its refs and for packs, over HTTP(S) and SSH.
//
// # Protocol
//
// Version 2 (gitprotocol-v2) is asked for and preferred; a server that ignores
// the request is spoken to in version 0 or 1 (gitprotocol-pack). Over HTTP only
// the smart protocol (gitprotocol-http) is spoken; a dumb server is named as
// such. Both object formats, SHA-1 and SHA-256, are understood.
//
//	Open    the server's greeting: version, capabilities, object format
//	Refs    refs chosen by name or by prefix
//	Fetch   a pack with wanted objects, shallow and filtered if asked
//
// In version 2 each of them is one request. In version 0 the greeting carries
// all refs: Refs reads them from there, keeping only those that were asked for.
//
// # Limits
//
// Nothing a server sends is trusted. Greetings, lists of refs, answers before
// the pack, packs, redirects, error pages and messages all have a limit in
// bytes; the lists have one in entries too. Passing one is [ErrLimit]. Names of
// refs that git check-ref-format would refuse are skipped. Text from a server is
// cut to one line of 1 KiB without control characters before it is repeated.
//
// Every method returns soon after its context ends, whatever the server does.
//
// # Errors
//
// Every error is an [*Error]: it tells the phase and the URL without user
// information or query. It wraps one of the Err values of this package, a
// [*HostKeyError], the cause of the context's end, or an error of the network.
//
// # Credentials
//
// Over HTTP they are the client's. A redirect is followed for the greeting only,
// as git does; it may lead to another origin (scheme, host, port) only if the
// redirected request carried no credentials, and never from https to http.
//
// Over SSH the server's host key must be in the given known_hosts: there is no
// way around that.
package wire
