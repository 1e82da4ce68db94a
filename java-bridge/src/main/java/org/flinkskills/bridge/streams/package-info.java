/**
 * Parts of a job graph that the Python package adds: keyed events, agents and tables, and readers
 * of savepoints.
 *
 * <p>Used by: the Python package, by the class {@code AgentStream}.
 */
package org.flinkskills.bridge.streams;
