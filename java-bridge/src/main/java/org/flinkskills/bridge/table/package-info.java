/**
 * Conversion between Flink's rows and pickled Python values.
 *
 * <p>The Python side is {@code flink_skills.agents.rows.column_types}; both must change together.
 *
 * <p>Used by: {@code turns}, {@code streams}.
 */
package org.flinkskills.bridge.table;
