// Package traffic divides requests between the primary and the canary of a
// rollout, and tells the workload what to do.
//
//	Proxy    a reverse proxy in this process, with measurements of its own
//	Adapter  traffic and target by actions; an operation without one does nothing
//	Command  an Action that runs a command
//	Request  an Action that sends a request
//
// # Proxy
//
// Of any 100 requests in a row that the weights are for, the canary gets as
// many as its weight says, spread evenly. New routes hold for requests that
// begin afterwards. What still runs a minute after the canary lost its traffic is
// cut off: see [Proxy.Target].
//
// Nothing is sent twice. An upstream that cannot be reached is status 502, one
// that does not answer in time 504, with a text that names neither; a request
// for the canary never goes to the primary instead, for that would hide a
// canary that fails. The one exception is what [http.Transport] does: when a
// connection that was kept open turns out to be closed, a request without side
// effects is sent on another one.
//
// Method, path, query, Host, body and trailers arrive as they were sent, and so
// do the answer and its informational responses. Headers of one hop are
// removed. X-Forwarded-For, -Host and -Proto are replaced by what the proxy saw,
// and Forwarded, X-Real-Ip and other X-Forwarded-… removed. An answer that
// comes before the end of the body ends the connection of the client. CONNECT is
// refused with 405. The proxy speaks HTTP/1.1 to upstreams. It does not limit the
// size of bodies, nor the time they take: the server that calls it does.
//
// # Adapters
//
// Commands and requests are templates ([text/template]) over [Values]. A value
// that is missing is an error, and so is a result of more than 64 KiB. Routes
// that do not sum to 100 are refused before they are set, and when they are read.
package traffic
