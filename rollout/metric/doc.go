// Package metric answers the metric queries of an analysis: from Prometheus,
// from HTTP endpoints and from commands. A [Querier] is the
// [rollout.Metrics] of an analysis.
//
// # Where a metric is asked
//
//	templateRef               the provider of the MetricTemplate
//	query                     spec.metricsServer of the canary, else the Querier's Prometheus
//	request-success-rate      the same, with a query of this package for spec.provider
//	request-duration          the same; the value is the 99th percentile in milliseconds
//
// The first that applies decides. Any other metric is an error.
//
// # Queries
//
// A query is a text with placeholders in the syntax of text/template: name,
// namespace, target, service, ingress, route, interval and variables, as in
// {{ target }}, {{ variables.region }} and {{ index variables "a-b" }}. The
// service is spec.service.name, the ingress spec.ingressRef.name, the route
// spec.routeRef.name; each is the name of the target where the canary has
// none. The interval is that of the metric, 1m without one, as Prometheus
// writes durations. A variable that the metric does not set is an error.
//
// There are if and else with and, or, not, eq and ne, and nothing else of text/template:
// what remains takes time and memory in proportion to the text. A query is at
// most 64 KiB, with and without its placeholders filled in.
//
// # Providers
//
//	prometheus   the query is PromQL, asked of ADDRESS/api/v1/query
//	http         the address is fetched; the query is a path into the JSON
//	             document that it answers, such as .data.items[0].value, or
//	             empty where it answers a bare number
//	exec         the query is a command line; what it prints is the number
//
// An answer is bounded by 1 MiB and 5 seconds, a command by 64 KiB and 30
// seconds. Redirects are followed within one origin only: no other is shown
// credentials, or asked at all.
//
// Prometheus may answer a scalar or a vector; of several samples the last
// counts, so a query is to give one. No sample, NaN, a JSON null, an index
// behind the end of a list and an empty output are no value: the error wraps
// [rollout.ErrNoValues]. Infinities are values. Warnings of Prometheus do not
// matter.
//
// # Secrets
//
// The Secret of a provider stands in the namespace of its template:
//
//	username, password       basic authentication, both
//	token, bearerToken       a bearer token instead
//	headers                  further headers, one "Name: value" a line
//
// # Trust
//
// The author of a canary chooses its metricsServer, which gets no credentials
// but those in its URL. The author of a MetricTemplate chooses the server that
// gets its Secret: placeholders of an address stand in its path and its query, where
// what they stand for is escaped, and may not make the segments . and .. of
// the path. In PromQL what they stand for is verbatim: an author of a canary
// with templateVariables writes a part of the query, and may read whatever
// the Secret of the template may. Commands run only if the owner of the
// Querier allows them; there is no shell, and a value of a canary is never
// more than one argument, nor an option where the template has none.
package metric
