// Package traffic divides requests between the primary and the canary of a
// rollout, and controls the workload.
//
//	Proxy    a reverse proxy in this process, with measurements of its own
//	Adapter  traffic and target with actions; an operation without one does nothing
//	Command  an Action that runs a command
//	Request  an Action that sends a request
//
// # Proxy
//
// Of any 100 consecutive requests that the weights apply to, the canary gets as many
// as its weight says, spread evenly. New routes apply to requests that begin
// afterwards. Requests that still run a minute after the canary lost its traffic are
// cut off: see [Proxy.Target].
//
// The proxy sends no request twice. If an upstream cannot be reached, it answers 502;
// if an upstream does not answer in time, 504; the text does not name the upstream. A
// request for the canary never goes to the primary instead, since that would hide a
// failing canary. There is one exception, made by [http.Transport]: if an idle
// connection turns out to be closed, it sends a request without side effects again on
// another connection.
//
// Method, path, query, Host, body and trailers are passed on unchanged, and so are the
// answer and its informational responses. Hop-by-hop headers are removed.
// X-Forwarded-For, -Host and -Proto are set by the proxy; Forwarded, X-Real-Ip and
// other X-Forwarded-… headers are removed. An answer before the end of the request
// body closes the connection of the client. CONNECT is refused with 405. The proxy
// uses HTTP/1.1 to upstreams. It limits neither the size of bodies nor the time they
// take: that is up to the server that calls it.
//
// # Adapters
//
// Commands and requests are templates ([text/template]) over [Values]. A missing
// value is an error, and so is a result of more than 64 KiB. Routes that do not sum
// to 100 are refused, both before they are set and after they are read.
package traffic
