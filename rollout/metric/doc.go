// Package metric answers the metric queries of an analysis: from Prometheus,
// from HTTP endpoints and from commands. A [Querier] is the
// [rollout.Metrics] of an analysis.
//
// # Sources of metrics
//
//	templateRef               the provider of the MetricTemplate
//	query                     spec.metricsServer of the canary, else the Querier's Prometheus
//	request-success-rate      the same, with a query of this package for spec.provider
//	request-duration          the same; the value is the 99th percentile in milliseconds
//
// The first row that applies is used. Any other metric is an error.
//
// # Queries
//
// A query is a text with placeholders in the syntax of text/template: name,
// namespace, target, service, ingress, route, interval and variables, as in
// {{ target }}, {{ variables.region }} and {{ index variables "a-b" }}. The
// service is spec.service.name, the ingress spec.ingressRef.name, the route
// spec.routeRef.name; each defaults to the name of the target. The interval is that
// of the metric, 1m by default, in the format of Prometheus. A variable that the
// metric does not set is an error.
//
// Of text/template, a query may also use if and else with and, or, not, eq and ne,
// and nothing else, so that it takes time and memory in proportion to its length. A
// query is at most 64 KiB long, before and after its placeholders are filled in.
//
// # Providers
//
//	prometheus   the query is PromQL, sent to ADDRESS/api/v1/query
//	http         the address is fetched; the query is a path into the JSON
//	             document of the answer, such as .data.items[0].value, or
//	             empty if the answer is a bare number
//	exec         the query is a command line; its output is the number
//
// An answer is limited to 1 MiB and 5 seconds, a command to 64 KiB of output and 30
// seconds. Redirects are followed within one origin only; no other origin gets a
// request or credentials.
//
// Prometheus may answer a scalar or a vector. The last sample of a vector counts, so
// a query should return one sample. No sample, NaN, a JSON null, an index beyond the
// end of a list and an empty output mean that there is no value: the error wraps
// [rollout.ErrNoValues]. Infinities are values. Warnings of Prometheus are ignored.
//
// # Secrets
//
// The Secret of a provider is in the namespace of its template:
//
//	username, password       basic authentication, both
//	token, bearerToken       a bearer token instead
//	headers                  further headers, one "Name: value" per line
//
// # Trust
//
// The author of a canary chooses its metricsServer, which gets only the credentials
// in its URL. Only the author of a MetricTemplate chooses the server that gets its
// Secret: an address may have placeholders in its path and query only, their values
// are escaped, and they cannot form the path segments . and .. In PromQL, values are
// inserted verbatim: the author of a canary with templateVariables writes a part of
// the query, and can read whatever the Secret of the template gives access to.
// Commands run only if the owner of the Querier allows them. There is no shell, and
// a value of a canary is never more than one argument, nor an option unless the
// template has one there.
package metric
